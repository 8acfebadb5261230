"""Wall attention: a decay for every channel, decided by content."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, Context, Dims, Encoding, register

# Queries at a time. exp(G_i) exp(-G_j) would overflow over a long range, so earlier keys are decayed to the first token
# of a block and its queries from there, both by factors of at most 1. Within a block, exponents are computed directly.
BLOCK = 16


@register("wall")
class Wall(Encoding):
    """Lets every token decide, for each channel, how much of the preceding context to forget.

    score(i, j) = sum_c q_ic k_jc exp(G_ic - G_jc) / sqrt(K), with G the cumulative sum, in float32, of g_t = ln
    sigmoid(W x_t + b), one number per head and channel; x is the layer's attention input. There is no rotation, and
    none of the post's options (scalar gate, output gate, window, sink).
    Beyond L: the decay depends on content, so no position can leave a trained range.

    Arguments: gate_bias, where b starts (default 8: almost nothing is forgotten at first).
    Source: Tilde Research, Wall Attention: Length Generalization With Diagonal Gates (2026, a blog post).
    """

    display = "Wall"
    source = "Tilde Research, Wall Attention"
    family = "content-dependent"
    accepts = frozenset({LOGITS})
    positional = False

    def __init__(self, dims: Dims, *, gate_bias: float = 8.0) -> None:
        super().__init__(dims)
        self.gate_bias = gate_bias
        self.gate = nn.Linear(dims.width, dims.heads * dims.head_dim)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.constant_(self.gate.bias, gate_bias)

    def prepare(self, x_BTD: Tensor) -> Tensor:
        """G, [B, H, T, K], float32."""
        log_gate_BTHK = nn.functional.logsigmoid(self.gate(x_BTD).float()).unflatten(-1, (self.dims.heads, -1))
        return log_gate_BTHK.cumsum(dim=1).transpose(1, 2)

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        scaled_BHTK = q_BHTK * q_BHTK.shape[-1] ** -0.5
        sum_q, sum_k = context.state[:, :, context.queries], context.state[:, :, context.keys]
        keys, before = k_BHSK.shape[2], context.queries.start - context.keys.start  # keys before the first query
        rows = []
        for start in range(0, q_BHTK.shape[2], BLOCK):
            block = slice(start, start + BLOCK)
            q, own = scaled_BHTK[:, :, block], sum_q[:, :, block]
            at = before + start  # the key of the block's first query
            anchor = own[:, :, :1]
            earlier = ((q * (own - anchor).exp().to(q.dtype)) @ self._decayed(k_BHSK, sum_k, anchor, at).mT).float()
            inside = slice(at, at + q.shape[2])
            # A key after its query is hidden: 0 keeps its exponent from overflowing.
            decay_BHTSK = (own[:, :, :, None] - sum_k[:, :, None, inside]).clamp(max=0.0).exp()
            within = (q[:, :, :, None] * k_BHSK[:, :, None, inside] * decay_BHTSK).sum(dim=-1).float()
            rows.append(nn.functional.pad(torch.cat([earlier, within], dim=-1), (0, keys - inside.stop)))
        return torch.cat(rows, dim=2)

    @staticmethod
    def _decayed(k_BHSK: Tensor, sum_k: Tensor, anchor: Tensor, end: int) -> Tensor:
        return k_BHSK[:, :, :end] * (anchor - sum_k[:, :, :end]).exp().to(k_BHSK.dtype)
