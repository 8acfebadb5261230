"""RoPE in two kinds of layers: most see a window; every n-th sees everything and rotates more slowly."""

from typing import Literal, Self

import torch

from extrapolate.encodings.base import Dims, register
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.rope import RoPE, geometric
from extrapolate.errors import UserError


class MostlyLocal(RoPE):
    """Has a window in most layers: layer l, counted from 0, has none if (l + 1) mod every = 0."""

    name: str  # of the encoding, for messages

    def __init__(
        self,
        dims: Dims,
        every: int,
        window: int | None,
        theta: float,
        pairing: Literal["half", "interleaved"],
    ) -> None:
        """Raises UserError if `every` exceeds the number of layers. window: tokens (default: L/2)."""
        super().__init__(dims, theta=theta, pairing=pairing)
        self.every = every
        if not 1 <= every <= dims.layers:
            raise UserError(f"{self.name}: every must be between 1 and the {dims.layers} layers, not {every}")
        self.size = max(1, dims.seq_len // 2) if window is None else window
        if self.size < 1:
            raise UserError(f"{self.name}: window must be at least 1 token, not {window}")
        self.sees_all = (dims.layer + 1) % every == 0
        self.window = None if self.sees_all else self.size

    def arguments(self) -> dict[str, object]:
        return super().arguments() | {"window": self.size}  # the same for every layer


@register("local-global")
class LocalGlobal(MostlyLocal):
    """Every sixth layer attends to everything and has a large base; the others attend to a window of recent keys.

    Layer l, counted from 0, is global if (l + 1) mod every = 0. Global layers rotate as RoPE does with base theta and
    with frequencies divided by factor. Local layers rotate with base local_theta, and their query i sees keys i -
    window + 1..i. Extensions of frequencies change only the global layers.
    Beyond L: local layers see nothing new if the window is at most L. In global layers, pairs that have not completed a
    turn within L tokens reach angles never seen, as in RoPE.

    Arguments: every, in layers (default 6, or the number of layers if that is less); window, in tokens (default L/2; in
    Gemma 3 at most 1024); theta, the base of global layers; local_theta, that of local ones; factor, a ratio (Gemma 3's
    larger models have 8); pairing, as for rope.
    Source: Gemma 3, arXiv 2503.19786.
    """

    display = "Local-global RoPE"
    source = "arXiv 2503.19786"
    name = "local-global"

    def __init__(
        self,
        dims: Dims,
        *,
        every: int | None = None,
        window: int | None = None,
        theta: float = 1_000_000.0,
        local_theta: float = 10_000.0,
        factor: float = 1.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, min(6, dims.layers) if every is None else every, window, theta, pairing)
        if local_theta <= 1:
            raise UserError(f"local-global: local_theta must be more than 1, not {local_theta:g}")
        if factor <= 0:
            raise UserError(f"local-global: factor must be positive, not {factor:g}")
        self.local_theta = local_theta
        self.factor = factor

    def frequencies(self, device: torch.device) -> torch.Tensor:
        if self.sees_all:
            return geometric(self.theta, self.dims.head_dim, device) / self.factor
        return geometric(self.local_theta, self.dims.head_dim, device)

    def extended(self, plan: Plan) -> Self:
        extended = super().extended(plan)
        return extended if self.sees_all else extended.copy_with(frequency_scale=())
