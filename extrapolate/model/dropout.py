"""Dropout whose random numbers cost little on a CPU.

There `torch.nn.Dropout` draws a number of its own for every element, one after the other: at the sizes of `expe-35m`
that takes 8 % of a step. Four elements share the 64 bits of one draw here, which takes a quarter of the time.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**16  # of the 16 bits that decide over an element


class Dropout(nn.Module):
    """Sets elements to zero with a probability, and scales the others so that the mean stays; in training alone.

    probability: from 0 to below 1. On a CPU it is rounded to a multiple of 2^-16, which the scale makes up for.
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
        # One kernel where autograd's own product would need two.
        return _Masked.apply(x, kept(x, self.dropped), scale)

    def extra_repr(self) -> str:
        return f"probability={self.probability}"


class _Masked(torch.autograd.Function):
    """x * kept * scale, whose gradient is the same of the gradient."""

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
    """Whether each element is kept, bool, of x's shape: it is dropped with probability dropped / 2^16.

    An operator of its own, so that compiled code draws the same numbers from torch's generator as code that is not.
    """
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    return (bits.view(torch.int16)[: x.numel()] >= dropped - _LEVELS // 2).view(x.shape)


@kept.register_fake
def _(x: Tensor, dropped: int) -> Tensor:
    return torch.empty(x.shape, dtype=torch.bool, device=x.device)
