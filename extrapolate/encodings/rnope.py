"""RNoPE: NoPE in some layers, RoPE within a sliding window in the others."""

from typing import Any, Literal

from torch import Tensor

from extrapolate.encodings.base import Dims, Rotations, register
from extrapolate.encodings.local_global import MostlyLocal


@register("rnope")
class RNoPE(MostlyLocal):
    """Every fourth layer has no encoding and attends to everything; the others have RoPE and a window of recent keys.

    Layer l, counted from 0, is NoPE if (l + 1) mod every = 0. The others rotate as RoPE does, and their query i sees
    keys i - window + 1..i.
    Beyond L: no rotated pair is further apart than in training, so the only thing new is a longer context in the NoPE
    layers. This does not hold without the window (window above L).

    Arguments: every, in layers (default 4, or the number of layers if that is less); window, in tokens (default L/2,
    the ratio of both papers' models; it should be at most L); theta and pairing, as for rope.
    Sources: RNoPE-SWA, Yang et al., arXiv 2501.18795; SWAN, Puvvada et al., arXiv 2504.08719, without its logarithmic
    scaling at inference.
    """

    display = "RNoPE"
    source = "arXiv 2501.18795"
    name = "rnope"

    def __init__(
        self,
        dims: Dims,
        *,
        every: int | None = None,
        window: int | None = None,
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, min(4, dims.layers) if every is None else every, window, theta, pairing)

    @property
    def has_rotation(self) -> bool:
        return not self.sees_all

    def rotations(self) -> Rotations | None:
        return None if self.sees_all else super().rotations()

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        return (q_BHTK, k_BGSK) if self.sees_all else super().rotate(q_BHTK, k_BGSK, pos_T, pos_S, state)
