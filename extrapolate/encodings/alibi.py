"""Attention with linear biases."""

import math

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding, register


def slopes(heads: int) -> list[float]:
    """ALiBi's slopes: 2^(-8h/H) for h = 1..H when H is a power of two.

    For any other H: those of the largest power of two P below it, then every second slope of 2P heads.
    """
    power = 2 ** math.floor(math.log2(heads))
    whole = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power, 2)]
    return whole + between[: heads - power]


@register("alibi")
class ALiBi(Encoding):
    """Subtracts the distance from each score, times a fixed slope per head.

    bias_h(i, j) = -slope_h (i - j), with slope_h = 2^(-8h/H) for h = 1..H. If H is not a power of two, the slopes are
    those of the largest power of two P below H, then every second slope for 2P heads. Nothing is trained.
    Beyond L: the bias keeps growing and acts as a soft window, so the loss stays about flat, mostly from local context.

    Source: Press et al., arXiv 2108.12409.
    """

    display = "ALiBi"
    source = "arXiv 2108.12409"
    family = "bias"

    slope_H: Tensor

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.register_buffer("slope_H", torch.tensor(slopes(dims.heads)), persistent=False)

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        distance_TS = pos_T[:, None] - pos_S[None, :]
        return -self.slope_H[:, None, None] * distance_TS
