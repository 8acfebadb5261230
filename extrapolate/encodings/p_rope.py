"""p-RoPE: RoPE without its slowest pairs."""

from typing import Literal

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, register
from extrapolate.encodings.rope import RoPE
from extrapolate.errors import UserError


@register("p-rope")
class PRoPE(RoPE):
    """Rotates only a share p of RoPE's pairs, the fastest ones.

    Pair m of K/2 turns by i w_m, w_m = theta^(-2m/K) as in RoPE, if m < n = floor(p K / 2); the others have w_m = 0 and
    carry only content. p = 1 is RoPE, p = 0 is NoPE.
    Beyond L: an unrotated pair has no angle that could leave the trained range, and every kept pair completes a turn
    within L if p <= ln(L / 2 pi) / ln(theta).

    Arguments: p, a share (default 0.75, the paper's best); drop, which pairs stay unrotated: "slowest", or "fastest"
    for the paper's reversed ablation; theta and pairing, as for rope.
    Source: Barbero et al., arXiv 2410.06205.
    """

    display = "p-RoPE"
    source = "arXiv 2410.06205"

    def __init__(
        self,
        dims: Dims,
        *,
        p: float = 0.75,
        drop: Literal["slowest", "fastest"] = "slowest",
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        if not 0 <= p <= 1:
            raise UserError(f"p-rope: p must be between 0 and 1, not {p:g}")
        self.p = p
        self.drop = drop

    def frequencies(self, device: torch.device) -> Tensor:
        frequencies = super().frequencies(device)
        kept = int(self.p * self.dims.head_dim // 2)
        if self.drop == "slowest":
            frequencies[kept:] = 0.0
        else:
            frequencies[: len(frequencies) - kept] = 0.0
        return frequencies
