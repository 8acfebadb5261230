"""Dropout with cheap random numbers on a CPU.

There, `torch.nn.Dropout` draws one number after the other for every element, which takes 8 % of a step at the sizes of
`expe-35m`. Here four elements share the 64 bits of a draw, which takes a quarter of the time.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**16  # of the 16 bits that decide whether an element is kept


class Dropout(nn.Module):
    """In training, sets elements to zero with a probability, and scales the others so that the mean stays.

    probability: from 0 to below 1; rounded to a multiple of 2^-16 on a CPU, which the scale makes up for.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.dropped = min(round(probability * _LEVELS), _LEVELS - 1)  # levels of 16 bits

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.probability)
        scale = _LEVELS / (_LEVELS - self.dropped)
        # A single kernel; autograd's product would need two.
        return _Masked.apply(x, kept(x, self.dropped), scale)

    def extra_repr(self) -> str:
        return f"probability={self.probability}"


class _Masked(torch.autograd.Function):
    """x * kept * scale; the gradient is scaled the same way."""

    @staticmethod
    def forward(x: Tensor, kept: Tensor, scale: float) -> Tensor:
        return torch.ops.aten.native_dropout_backward(x, kept, scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], _: Tensor) -> None:
        _, kept, ctx.scale = inputs
        ctx.save_for_backward(kept)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return torch.ops.aten.native_dropout_backward(grad, kept, ctx.scale), None, None


@torch.library.custom_op("extrapolate::kept", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def kept(x: Tensor, dropped: int) -> Tensor:
    """Whether each element of x is kept, bool: it is dropped with probability dropped / 2^16.

    A custom operator, so that compiled and eager code draw the same numbers from torch's generator.
    """
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    return (bits.view(torch.int16)[: x.numel()] >= dropped - _LEVELS // 2).view(x.shape)


@kept.register_fake
def _(x: Tensor, dropped: int) -> Tensor:
    return torch.empty(x.shape, dtype=torch.bool, device=x.device)
