"""RNoPE: NoPE in some layers, RoPE within a sliding window in the others."""

from typing import Literal

from torch import Tensor

from extrapolate.encodings.base import Dims, Rotations, register
from extrapolate.encodings.rope import RoPE
from extrapolate.errors import UserError


@register("rnope")
class RNoPE(RoPE):
    """Every fourth layer has no encoding and sees everything; the others have RoPE and see a window of recent keys.

    Layer l, counted from 0, is NoPE where (l + 1) mod every = 0. The others rotate as RoPE does and query i sees
    keys i - window + 1..i.
    Beyond L: no rotated pair is ever further apart than in training, so nothing new is met but a longer context in
    the NoPE layers; RNoPE without the window (window = L or more) does not have this.

    Arguments: every, in layers (default 4, or the number of layers if that is less); window, in tokens (default
    L/2, the ratio of both papers' models; it should be at most L); theta, the base (default 10 000); pairing, as
    for rope.
    Sources: RNoPE-SWA, Yang et al., arXiv 2501.18795; SWAN, Puvvada et al., arXiv 2504.08719, whose logarithmic
    scaling at inference is not part of it.
    """

    display = "RNoPE"
    source = "arXiv 2501.18795"

    def __init__(
        self,
        dims: Dims,
        *,
        every: int | None = None,
        window: int | None = None,
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        self.every = min(4, dims.layers) if every is None else every
        if not 1 <= self.every <= dims.layers:
            raise UserError(f"rnope: every must be between 1 and the {dims.layers} layers, not {every}")
        self.size = max(1, dims.seq_len // 2) if window is None else window
        if self.size < 1:
            raise UserError(f"rnope: window must be at least 1 token, not {window}")
        self.unencoded = (dims.layer + 1) % self.every == 0
        self.window = None if self.unencoded else self.size

    def arguments(self) -> dict[str, object]:
        return super().arguments() | {"window": self.size}  # the same for every layer

    def rotations(self) -> Rotations | None:
        return None if self.unencoded else super().rotations()

    def rotate(self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor) -> tuple[Tensor, Tensor]:
        return (q_BHTK, k_BGSK) if self.unencoded else super().rotate(q_BHTK, k_BGSK, pos_T, pos_S)
