"""Canon layers: short causal convolutions, which pass information from each token to the next ones.

Shapes: B batch, T tokens, C channels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TOKENS = 4  # that a convolution sees, including the current one
FEED_FORWARD_SIGHT = 2 * (TOKENS - 1)  # earlier tokens that a block's feed-forward part sees, with two layers in a row
CHUNK_ELEMENTS = 2**15  # 128 KiB in float32, which stay in a core's cache


class Canon(nn.Module):
    """A causal convolution of each channel over 4 tokens, added to its input: y_t = x_t + sum_u w_u x_(t-u).

    A block has four (arXiv 2512.17351): on the input of attention; on its queries, keys and values; on the input of the
    feed-forward network; and on its gate and up projections. As in the authors' code, there is neither a bias nor an
    activation, and weights start like those of torch's Conv1d, uniform in [-1/2, 1/2].
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight_C4 = nn.Parameter(torch.empty(channels, TOKENS))  # the last one is for the token itself

    def draw(self) -> None:
        """Draws fresh weights."""
        nn.init.uniform_(self.weight_C4, -(TOKENS**-0.5), TOKENS**-0.5)

    def forward(self, x_BTC: Tensor) -> Tensor:
        weight_C4 = self.weight_C4.to(x_BTC.dtype)
        if x_BTC.device.type == "cpu" and not torch.compiler.is_compiling():
            return _Convolution.apply(x_BTC, weight_C4)
        padded_BTC, y_BTC = F.pad(x_BTC, (0, 0, TOKENS - 1, 0)), x_BTC
        for place, weight_C in enumerate(weight_C4.unbind(dim=1)):
            y_BTC = torch.addcmul(y_BTC, padded_BTC[:, place : place + x_BTC.shape[1]], weight_C)
        return y_BTC


class _Convolution(torch.autograd.Function):
    """The same for CPUs, some windows at a time: takes a third of the time of whole tensors, forward and backward."""

    @staticmethod
    def forward(x_BTC: Tensor, weight_C4: Tensor) -> Tensor:
        y_BTC, taps = torch.empty_like(x_BTC), _taps(weight_C4)
        for x, y in zip(*_chunks(x_BTC, y_BTC), strict=True):
            torch.mul(x, taps[0], out=y)
            for back in range(1, TOKENS):
                y[:, back:].addcmul_(x[:, :-back], taps[back])
        return y_BTC

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_BTC: Tensor) -> tuple[Tensor, Tensor]:
        x_BTC, weight_C4 = ctx.saved_tensors
        grad_x_BTC, taps = torch.empty_like(x_BTC), _taps(weight_C4)
        grad_4C = torch.zeros(TOKENS, len(weight_C4), dtype=torch.promote_types(weight_C4.dtype, torch.float32))
        for x, grad, grad_x in zip(*_chunks(x_BTC, grad_BTC, grad_x_BTC), strict=True):
            torch.mul(grad, taps[0], out=grad_x)
            grad_4C[-1] += (grad * x).sum(dim=(0, 1), dtype=grad_4C.dtype)
            for back in range(1, TOKENS):
                later, earlier = grad[:, back:], slice(None, -back)
                grad_x[:, earlier].addcmul_(later, taps[back])
                grad_4C[-1 - back] += (later * x[:, earlier]).sum(dim=(0, 1), dtype=grad_4C.dtype)
        return grad_x_BTC, grad_4C.mT.to(weight_C4.dtype)


def _taps(weight_C4: Tensor) -> list[Tensor]:
    """The factors of the token itself, including 1 for the sum, and of those 1, 2 and 3 before."""
    now_C, *before = (weight_C.contiguous() for weight_C in reversed(weight_C4.unbind(dim=1)))
    return [now_C + 1, *before]


def _chunks(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Splits each tensor into chunks of windows."""
    windows = max(1, CHUNK_ELEMENTS // tensors[0].shape[1:].numel())
    return [tensor.split(windows) for tensor in tensors]
