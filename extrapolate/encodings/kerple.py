"""KERPLE: kernelised relative positions."""

from typing import Literal

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims, Encoding, register

SMALLEST = 0.01  # the authors' code overwrites what is less
LARGEST_POWER = 2.0


@register("kerple")
class KERPLE(Encoding):
    """Subtracts from each score a learned, slowly growing function of the distance r = i - j.

    The bias is -p_h ln(1 + a_h r) for kernel "log", and -a_h r^(p_h), 0 < p <= 2, for "power". Each head has its own p
    and a, shared by all layers; their initial values are drawn uniformly, p from 0..2 and a from 0..1. Training keeps
    them at 0.01 or more. Beyond L: the bias keeps decaying smoothly, and the loss stays about flat.

    Arguments: kernel, "log" (the paper's best) or "power".
    Source: Chi et al., arXiv 2205.09921.
    """

    display = "KERPLE"
    source = "arXiv 2205.09921"
    family = "bias"
    shared_by_layers = ("p_H", "a_H")

    def __init__(self, dims: Dims, *, kernel: Literal["log", "power"] = "log") -> None:
        super().__init__(dims)
        self.kernel = kernel
        self.p_H = nn.Parameter(torch.empty(dims.heads).uniform_(0, 2))
        self.a_H = nn.Parameter(torch.empty(dims.heads).uniform_(0, 1))

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        p_H11, a_H11 = (values_H[:, None, None] for values_H in self._within())
        distance_TS = (pos_T[:, None] - pos_S[None, :]).clamp(min=0)
        if self.kernel == "log":
            return -p_H11 * torch.log1p(a_H11 * distance_TS)
        return -a_H11 * distance_TS**p_H11

    def constrain(self) -> None:
        # Else a parameter out of its range would stay there: the clamp in `bias` has no gradient beyond its bounds.
        for parameter, within in zip((self.p_H, self.a_H), self._within(), strict=True):
            parameter.copy_(within)

    def _within(self) -> tuple[Tensor, Tensor]:
        """p and a within their ranges."""
        return self.p_H.clamp(SMALLEST, None if self.kernel == "log" else LARGEST_POWER), self.a_H.clamp(SMALLEST)
