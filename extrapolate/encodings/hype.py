"""HyPE: a recurrence with RoPE in most layers, and attention without positions in the others."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from extrapolate.encodings.alibi import slopes
from extrapolate.encodings.base import LOGITS, MASK, Dims, Encoding, register
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.retention import faded_sums
from extrapolate.encodings.rope import RoPE
from extrapolate.errors import UserError


@register("hype")
class HyPE(Encoding):
    """Replaces attention with a recurrence with RoPE, except in every fourth layer, which attends without positions.

    Layer l, counted from 0, attends if (l + 1) mod every = 0. In all layers, queries and keys are normalised per head
    (RMSNorm). The recurrent layers rotate them as RoPE does, and token i gathers the sum of (q_i k_j / sqrt(K))
    e^(-slope_h (i - j)) v_j over j <= i, with ALiBi's slopes. The outputs of all heads are normalised together
    (RMSNorm) and multiplied by sigmoid(W x_i), x the layer's attention input. Computed in blocks, in float32.
    Beyond L: the recurrence decays as in training, and attention has no positions, only more keys. To allow for these,
    the authors multiply query i by ln(i + a) / ln(a), only at test time: log-n:offset=a.

    Arguments: every, in layers (default 4, or the number of layers if that is less); theta, the base of the rotation.
    Our reading: the authors searched a model that was already trained for the best 7 of its 28 layers to attend; here
    the attending layers are evenly spaced. They also multiply the output of attention by sigmoid(W x), which is left
    out: the model's setting output_gate does it in all layers.
    Source: HyPE, arXiv 2601.22156.
    """

    display = "HyPE"
    source = "arXiv 2601.22156"
    family = "recurrent"
    caption = "HyPE: queries and keys are normalised; which layers attend, and without a gate, is our reading."
    rescales = frozenset({"rotate"})
    accepts = frozenset({MASK, LOGITS})

    log_decay_H: Tensor

    def __init__(self, dims: Dims, *, every: int | None = None, theta: float = 10_000.0) -> None:
        super().__init__(dims)
        self.every = min(4, dims.layers) if every is None else every
        if not 1 <= self.every <= dims.layers:
            raise UserError(f"hype: every must be between 1 and the {dims.layers} layers, not {every}")
        self.theta = theta
        self.recurrent = (dims.layer + 1) % self.every != 0
        self.query_norm, self.key_norm = (nn.RMSNorm(dims.head_dim, eps=1e-6) for _ in (1, 2))
        self.rope = RoPE(dims, theta=theta)
        if self.recurrent:
            channels = dims.heads * dims.head_dim
            self.register_buffer("log_decay_H", -torch.tensor(slopes(dims.heads)), persistent=False)
            self.norm = nn.RMSNorm(channels, eps=1e-6)
            self.gate = nn.Linear(dims.width, channels, bias=False)
            nn.init.normal_(self.gate.weight, std=0.02)

    def prepare(self, x_BTD: Tensor) -> Tensor | None:
        """The gate of each channel, [B, T, H K], float32; None if the layer attends."""
        return self.gate(x_BTD).float().sigmoid() if self.recurrent else None

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        q, k = self.query_norm(q_BHTK.float()), self.key_norm(k_BGSK.float())
        if self.recurrent:
            q, k = self.rope.rotate(q, k, pos_T, pos_S)
        return q.to(q_BHTK.dtype), k.to(k_BGSK.dtype)

    def attends(self) -> bool:
        return not self.recurrent

    def mix(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, state: Any) -> Tensor | None:
        if not self.recurrent:
            return None
        mixed_BHTK = faded_sums(q_BHTK, k_BGTK, v_BGTK, self.log_decay_H)
        gated_BTC = self.norm(mixed_BHTK.transpose(1, 2).flatten(-2)) * state
        return gated_BTC.unflatten(-1, (self.dims.heads, -1)).transpose(1, 2).to(q_BHTK.dtype)

    def extended(self, plan: Plan) -> Self:
        return self if self.recurrent else super().extended(plan)
