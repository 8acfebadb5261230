"""Sandwich: the product of two sinusoids as a bias."""

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding, register
from extrapolate.encodings.rope import geometric, turn
from extrapolate.errors import UserError

LARGEST = 2**16  # channels of the sinusoids


@register("sandwich")
class Sandwich(Encoding):
    """Adds to each score the inner product of the two positions' sinusoids, divided by a constant per head.

    bias_h(i, j) = (1/c_h) sum_m cos((i - j) w_m), w_m = 10000^(-2m/size), m = 0..size/2-1, c_h = 8h/H for h = 1..H. It
    falls about logarithmically from size / (2 c_h) at distance 0. Nothing is trained.
    Beyond L: the bias keeps falling slowly.

    Our reading: the authors' code was not available; size 128, the range of m and 1/c_h are not verified.
    Arguments: size, in channels of the sinusoids, even (default 128 for a model of any width).
    Source: Chi et al., arXiv 2212.10356.
    """

    display = "Sandwich"
    source = "arXiv 2212.10356"
    family = "bias"
    caption = "Sandwich: our reading of arXiv 2212.10356, whose constants are not verified"

    strength_H: Tensor

    def __init__(self, dims: Dims, *, size: int = 128) -> None:
        super().__init__(dims)
        if size < 2 or size % 2:
            raise UserError(f"sandwich: size must be a positive even number, not {size}")
        if size > LARGEST:
            raise UserError(f"sandwich: size must be at most {LARGEST} channels, not {size}")
        self.size = size
        strength_H = dims.heads / (8.0 * torch.arange(1, dims.heads + 1))
        self.register_buffer("strength_H", strength_H, persistent=False)

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        frequencies = geometric(10_000.0, self.size, pos_T.device)
        with torch.autocast(pos_T.device.type, enabled=False):
            product_TS = torch.cat(turn(pos_T, frequencies), dim=-1) @ torch.cat(turn(pos_S, frequencies), dim=-1).T
        return self.strength_H[:, None, None] * product_TS
