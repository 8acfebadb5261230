"""The one place where scores are computed.

Shapes: B batch, T queries, S keys, H heads, G key and value heads, K head dim. Queries and keys of a window
share their indices: query t sees keys 0..t, or the last `window` of them.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.encodings.base import Encoding

# Up to this length one explicit batched product beats the fused kernel when training on a CPU.
EXPLICIT_UP_TO = 256
# A bias is computed for so many queries at a time: it stays in the cache, and memory grows with the length alone.
QUERIES_PER_CHUNK = 128


def attend(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, encoding: Encoding, pos_T: Tensor) -> Tensor:
    """Causal attention, with the encoding's bias and window. Returns [B, H, T, K].

    Three paths give the same numbers: the fused causal kernel; the fused kernel with a bias, in chunks of
    queries, so that no [H, T, T] ever exists; and for short windows in training the explicit product.
    """
    heads, length = q_BHTK.shape[1], q_BHTK.shape[2]
    groups = heads // k_BGTK.shape[1]
    k_BHTK, v_BHTK = (x.repeat_interleave(groups, dim=1) if groups > 1 else x for x in (k_BGTK, v_BGTK))
    if torch.is_grad_enabled() and length <= EXPLICIT_UP_TO:
        return _explicit(q_BHTK, k_BHTK, v_BHTK, _masked_bias(encoding, pos_T, 0, 0, length))
    if encoding.window is None and encoding.bias(pos_T[:1], pos_T[:1]) is None:
        return F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
    outputs = []
    for start in range(0, length, QUERIES_PER_CHUNK):
        end = min(start + QUERIES_PER_CHUNK, length)
        first = 0 if encoding.window is None else max(0, start + 1 - encoding.window)
        bias_HTS = _masked_bias(encoding, pos_T, first, start, end)
        if q_BHTK.device.type != "cpu":  # only the CPU's kernel takes a float32 bias with bfloat16 queries
            bias_HTS = bias_HTS.to(q_BHTK.dtype)
        outputs.append(
            F.scaled_dot_product_attention(
                q_BHTK[:, :, start:end], k_BHTK[:, :, first:end], v_BHTK[:, :, first:end], attn_mask=bias_HTS
            )
        )
    return torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]


def _masked_bias(encoding: Encoding, pos_T: Tensor, first: int, start: int, end: int) -> Tensor:
    """The encoding's bias of queries start..end-1 on keys first..end-1, -inf where a query does not see a key."""
    distance_TS = (
        torch.arange(start, end, device=pos_T.device)[:, None] - torch.arange(first, end, device=pos_T.device)[None, :]
    )
    hidden_TS = distance_TS < 0
    if encoding.window is not None:
        hidden_TS = hidden_TS | (distance_TS >= encoding.window)
    bias_HTS = encoding.bias(pos_T[start:end], pos_T[first:end])
    if bias_HTS is None:
        bias_HTS = torch.zeros(1, end - start, end - first, device=pos_T.device)
    return bias_HTS.masked_fill(hidden_TS, float("-inf"))


def _explicit(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, bias_HTS: Tensor) -> Tensor:
    scores_BHTS = ((q_BHTK * q_BHTK.shape[-1] ** -0.5) @ k_BHTK.transpose(-1, -2)).float()
    scores_BHTS += bias_HTS
    return scores_BHTS.softmax(dim=-1).to(v_BHTK.dtype) @ v_BHTK
