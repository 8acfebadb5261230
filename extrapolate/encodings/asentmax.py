"""Adaptive-scalable entmax, with NAPE's heads."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from extrapolate.encodings.base import Context, Dims, Encoding, register
from extrapolate.errors import UserError


@register("asentmax")
class ASEntmax(Encoding):
    """Replaces the softmax by entmax, which gives most keys no weight at all, with sharper scores in longer contexts.

    Weights are max(z/2 - t, 0)^2 with t such that they add up to 1 (entmax, alpha = 1.5). Half of the heads, the first
    ones, have ALiBi's bias -slope_h (i - j); the others have no encoding (together: NAPE), and their query i is
    multiplied by 1 + softplus(w x_i) ln(i + 2)^(range tanh(u x_i)), x the layer's attention input, w and u one vector
    per head, before the division by sqrt(K). With an odd number of heads, the extra one has no encoding.
    Beyond L: keys whose scores are too low keep a weight of exactly 0, however many there are; the factor grows with
    the query's index as it did up to L, and the bias acts as a soft window.

    Arguments: slopes, of the heads with a bias: "linear", 1/h for h = 1, 2, ..., the default of the authors' code, or
    "exp", 2^(1 - h); range, the largest exponent (default 2, as in their code). Their code finds t by bisection and
    this one exactly, by sorting.
    Source: Vasylenko et al., arXiv 2506.16640.
    """

    display = "ASEntmax"
    source = "arXiv 2506.16640"
    family = "content-dependent"
    caption = "ASEntmax: queries of the heads without a bias are scaled by content and index, by 1.7 at first."
    rescales = frozenset({"rotate"})

    slope_H: Tensor

    def __init__(self, dims: Dims, *, slopes: Literal["linear", "exp"] = "linear", range: float = 2.0) -> None:
        super().__init__(dims)
        if range <= 0:
            raise UserError(f"asentmax: range must be positive, not {range:g}")
        self.slopes = slopes
        self.range = range
        biased = torch.arange(dims.heads // 2)
        slope = 1.0 / (biased + 1) if slopes == "linear" else 2.0**-biased
        self.scaled = dims.heads - len(biased)
        self.register_buffer("slope_H", torch.cat([slope, torch.zeros(self.scaled)]), persistent=False)
        self.gain, self.exponent = (nn.Linear(dims.width, self.scaled, bias=False) for _ in (1, 2))
        for layer in (self.gain, self.exponent):
            nn.init.normal_(layer.weight, std=0.02)

    def prepare(self, x_BTD: Tensor) -> Tensor:
        """The factor of every query of the heads that have one, float32."""
        gain_BTH, exponent_BTH = (layer(x_BTD).float() for layer in (self.gain, self.exponent))
        log_T1 = torch.arange(2, x_BTD.shape[1] + 2, device=x_BTD.device).log()[:, None]
        grown_BTH = log_T1 ** (self.range * exponent_BTH.tanh())
        return self.rounded(1 + nn.functional.softplus(gain_BTH) * grown_BTH).transpose(1, 2)[..., None]

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        first, last = q_BHTK.split([q_BHTK.shape[1] - self.scaled, self.scaled], dim=1)
        return torch.cat([first, (last * state).to(q_BHTK.dtype)], dim=1), k_BGSK

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        return -self.slope_H[:, None, None] * (pos_T[:, None] - pos_S[None, :])

    def weights(self, scores_BHTS: Tensor, context: Context) -> Tensor:
        return Entmax.apply(scores_BHTS)


class Entmax(torch.autograd.Function):
    """max(z/2 - t, 0)^2 over the last dimension, with t such that the sum is 1; -inf gets exactly 0.

    If the k largest have a weight, t solves a quadratic equation: it is their mean, less the root of (1 - their summed
    squared deviations) / k. The largest k whose own k-th number exceeds this t is the right one.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        # Relative to the largest, t lies between -1 and 0: what is below -1 has no weight, and stays out of the sums.
        half = ((z - z.amax(dim=-1, keepdim=True)) / 2).clamp(min=-1.0)
        ordered = half.sort(dim=-1, descending=True).values
        count = torch.arange(1, z.shape[-1] + 1, device=z.device)
        mean = ordered.cumsum(dim=-1) / count
        spread = ordered.square().cumsum(dim=-1) - count * mean.square()
        threshold = mean - ((1 - spread) / count).clamp(min=0.0).sqrt()
        k = (threshold < ordered).sum(dim=-1, keepdim=True).clamp(min=1)
        root = (half - threshold.gather(-1, k - 1)).clamp(min=0.0).masked_fill(z == -math.inf, 0.0)
        ctx.save_for_backward(root)
        return root.square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        weighted = grad * root
        return weighted - root * (weighted.sum(dim=-1, keepdim=True) / root.sum(dim=-1, keepdim=True))
