"""Computes attention, for all encodings.

Shapes: B batch, T queries, S keys, H heads, G key and value heads, K head dim. Queries and keys of a window
share their indices: query t sees keys 0..t, or the last `window` of them.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.encodings.base import Context, Encoding, scaled_product
from extrapolate.encodings.plan import Plan

# Up to this length in float32, and twice this length in bfloat16, explicit products in chunks are no slower than the
# fused kernel when training on a CPU: with 12 heads of 32 channels, forward and backward take 0.66 of its time at 512
# in bfloat16 (compiled 0.45), and 1.07 in float32.
EXPLICIT_UP_TO = 256
# Queries for which a bias or explicit scores are computed at a time: these stay in the cache, and memory is linear in
# the length.
QUERIES_PER_CHUNK = 128


class Observer(Protocol):
    """Receives the attention of every layer, a chunk of queries at a time: see `ResolvedPlan`."""

    def attended(
        self, layer: int, q_BHTK: Tensor | None, k_BHSK: Tensor | None, weight_BHTS: Tensor, queries: slice, keys: slice
    ) -> None:
        """Queries and keys as they were scored, after any rotation, their weights, and their indices.

        Queries and keys are None if the plan has branches of pairs: each then has several rotations.
        """


@dataclass(frozen=True)
class Scoring:
    """How a layer scores queries and keys, and which queries are wanted.

    pos_T: the positions. state: from `encoding.prepare`. scale_HT: multiplies the scores, including the bias; [1, T]
    for all heads; None for 1. first_wanted: earlier queries are left out. first_known: so are earlier ones, whose keys
    alone are known. queries_per_chunk: None for QUERIES_PER_CHUNK. observer: makes every chunk explicit. sink_H: the
    score of one more key, which all queries see and whose value is 0; None for no such key.
    """

    encoding: Encoding
    pos_T: Tensor
    state: Any = None
    scale_HT: Tensor | None = None
    first_wanted: int = 0
    first_known: int = 0
    queries_per_chunk: int | None = None
    observer: Observer | None = None
    sink_H: Tensor | None = None

    def chunks(self, length: int) -> list[tuple[int, int]]:
        """The first query of each chunk that holds a wanted one, and the one after its last, of `length` queries.

        A known query's chunk does not depend on which queries are wanted. An encoding whose numbers depend on the chunk
        then has the same ones in every evaluation as in the check for looking ahead.
        """
        size = self.queries_per_chunk or QUERIES_PER_CHUNK
        begin = max(self.first_known, self.first_wanted // size * size)
        return [(start, min(start + size, length)) for start in range(begin, length, size)]

    def scale_of(self, queries: slice) -> Tensor | None:
        """The factor of the scores of some queries."""
        return None if self.scale_HT is None else self.scale_HT[:, queries]


def attend(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, scoring: Scoring) -> Tensor:
    """Causal attention with the encoding's scores, bias and window. Returns [B, H, T - first_wanted, K].

    Depending on the hooks, uses the fused causal kernel; the fused kernel with a bias, in chunks of queries; or
    explicit scores in chunks, if the encoding has its own scores or weights or a trained bias, if there is a sink, and
    for short windows in training. All give the same numbers, and none makes a tensor [H, T, T].
    """
    encoding, pos_T, state = scoring.encoding, scoring.pos_T, scoring.state
    heads, length = q_BHTK.shape[1], q_BHTK.shape[2]
    groups = heads // k_BGTK.shape[1]
    k_BHTK, v_BHTK = (x.repeat_interleave(groups, dim=1) if groups > 1 else x for x in (k_BGTK, v_BGTK))
    # Probes with the first query which hooks the encoding has.
    bias = encoding.bias(pos_T[:1], pos_T[:1])
    first = chunk_context(encoding, pos_T, pos_T, state, 0, 1)
    scores = encoding.scores(q_BHTK[:, :, :1], k_BHTK[:, :, :1], first)
    softmax = encoding.weights(pos_T.new_zeros(*q_BHTK.shape[:2], 1, 1), first) is None
    short = torch.is_grad_enabled() and length * q_BHTK.itemsize <= EXPLICIT_UP_TO * torch.float32.itemsize
    fused = scores is None and softmax and scoring.sink_H is None
    plain = fused and bias is None and encoding.window is None and scoring.observer is None
    if plain and not short and scoring.first_wanted < length // 2:
        return _fused(_scaled(q_BHTK, scoring.scale_HT), k_BHTK, v_BHTK, None)[:, :, scoring.first_wanted :]
    trained_bias = bias is not None and bias.requires_grad  # the fused kernel has no gradient for it
    path = _fused_with_bias if fused and not trained_bias and not short else _explicit
    if scoring.observer is not None:
        path = _observed
    outputs, chunks = [], scoring.chunks(length)
    for start, end in chunks:
        context = chunk_context(encoding, pos_T, pos_T, state, start, end)
        queries, keys = context.queries, context.keys
        outputs.append(path(q_BHTK[:, :, queries], k_BHTK[:, :, keys], v_BHTK[:, :, keys], scoring, context))
    mixed_BHTK = torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]
    return mixed_BHTK[:, :, scoring.first_wanted - chunks[0][0] :]


def chunk_context(
    encoding: Encoding, query_pos_T: Tensor, key_pos_T: Tensor, state: Any, start: int, end: int
) -> Context:
    """The context of queries start..end-1 and the keys that any of them sees."""
    first_key = 0 if encoding.window is None else max(0, start + 1 - encoding.window)
    index = torch.arange(first_key, end, device=query_pos_T.device)
    distance_TS = index[start - first_key :, None] - index[None, :]
    hidden_TS = distance_TS < 0
    if encoding.window is not None:
        hidden_TS = hidden_TS | (distance_TS >= encoding.window)
    queries, keys = slice(start, end), slice(first_key, end)
    return Context(query_pos_T[queries], key_pos_T[keys], queries, keys, hidden_TS, state)


def _masked_bias(encoding: Encoding, context: Context, scale_HT: Tensor | None) -> Tensor:
    """The encoding's bias, [H, T, S], with -inf for hidden keys."""
    bias_HTS = encoding.bias(context.pos_T, context.pos_S)
    if bias_HTS is None:
        bias_HTS = torch.zeros(1, *context.hidden_TS.shape, device=context.hidden_TS.device)
    else:
        bias_HTS = encoding.rounded(bias_HTS)
        if scale_HT is not None:
            bias_HTS = bias_HTS * scale_HT[..., None]
    return bias_HTS.masked_fill(context.hidden_TS, float("-inf"))


def _scaled(q_BHTK: Tensor, scale_HT: Tensor | None) -> Tensor:
    return q_BHTK if scale_HT is None else (q_BHTK * scale_HT[..., None]).to(q_BHTK.dtype)


def _fused(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, bias_HTS: Tensor | None) -> Tensor:
    """The fused kernel, causal without a bias. Pads values, which it needs as wide as keys."""
    width = v_BHSK.shape[-1]
    if q_BHTK.shape[-1] > width:
        v_BHSK = F.pad(v_BHSK, (0, q_BHTK.shape[-1] - width))
    mixed = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=bias_HTS, is_causal=bias_HTS is None)
    return mixed[..., :width]


def _fused_with_bias(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, scoring: Scoring, context: Context) -> Tensor:
    scale_HT = scoring.scale_of(context.queries)
    bias_HTS = _masked_bias(scoring.encoding, context, scale_HT)
    if q_BHTK.device.type != "cpu":  # only the CPU's kernel accepts a float32 bias with bfloat16 queries
        bias_HTS = bias_HTS.to(q_BHTK.dtype)
    return _fused(_scaled(q_BHTK, scale_HT), k_BHSK, v_BHSK, bias_HTS)


def _explicit(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, scoring: Scoring, context: Context) -> Tensor:
    encoding = scoring.encoding
    scores_BHTS = explicit_scores(q_BHTK, k_BHSK, encoding, context, scoring.scale_of(context.queries))
    if scoring.sink_H is not None:
        scores_BHTS, context = _with_sink(scoring.sink_H, scores_BHTS, context)
        v_BHSK = F.pad(v_BHSK, (0, 0, 1, 0))  # a value of 0: cheaper than cutting off the sink's weight
    weight_BHTS = encoding.weights(scores_BHTS, context)
    if weight_BHTS is None:
        return _Softmax.apply(scores_BHTS, v_BHSK.dtype) @ v_BHSK
    return weight_BHTS.to(v_BHSK.dtype) @ v_BHSK


def _observed(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, scoring: Scoring, context: Context) -> Tensor:
    encoding = scoring.encoding
    scores_BHTS = explicit_scores(q_BHTK, k_BHSK, encoding, context, scoring.scale_of(context.queries))
    weight_BHTS = weights_of(encoding, scores_BHTS, context, scoring.sink_H)
    assert scoring.observer is not None
    scoring.observer.attended(encoding.dims.layer, q_BHTK, k_BHSK, weight_BHTS, context.queries, context.keys)
    return weight_BHTS.to(v_BHSK.dtype) @ v_BHSK


def weights_of(encoding: Encoding, scores_BHTS: Tensor, context: Context, sink_H: Tensor | None = None) -> Tensor:
    """The weight of each value for each query, float32 [B, H, T, S]; they add up to 1 minus that of a sink."""
    if sink_H is not None:
        scores_BHTS, context = _with_sink(sink_H, scores_BHTS, context)
    weight_BHTS = encoding.weights(scores_BHTS, context)
    weight_BHTS = scores_BHTS.softmax(dim=-1) if weight_BHTS is None else weight_BHTS
    return weight_BHTS if sink_H is None else weight_BHTS[..., 1:]


def _with_sink(sink_H: Tensor, scores_BHTS: Tensor, context: Context) -> tuple[Tensor, Context]:
    """Puts the sink's score, unscaled, in front of the keys' scores, as if it were a key before the first one."""
    sink_BHT1 = sink_H.float()[:, None, None].expand(*scores_BHTS.shape[:-1], 1)
    pos_S = torch.cat([context.pos_S[:1] - 1, context.pos_S])
    wider = replace(context, pos_S=pos_S, hidden_TS=F.pad(context.hidden_TS, (1, 0)))
    return torch.cat([sink_BHT1, scores_BHTS], dim=-1), wider


class _Softmax(torch.autograd.Function):
    """A float32 softmax that is only kept in `dtype` for its gradient.

    Autograd would also keep it in float32, twice the size of bfloat16 in every layer, for gradients that are rounded
    to bfloat16 anyway.
    """

    @staticmethod
    def forward(scores_BHTS: Tensor, dtype: torch.dtype) -> Tensor:
        return scores_BHTS.softmax(dim=-1).to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_BHTS: Tensor) -> tuple[Tensor, None]:
        (weight_BHTS,) = ctx.saved_tensors
        if torch.compiler.is_compiling():  # one pass, without intermediate rounding
            weight_BHTS, grad_BHTS = weight_BHTS.float(), grad_BHTS.float()
            return weight_BHTS * (grad_BHTS - (weight_BHTS * grad_BHTS).sum(dim=-1, keepdim=True)), None
        return torch._softmax_backward_data(grad_BHTS, weight_BHTS, -1, weight_BHTS.dtype), None


def explicit_scores(
    q_BHTK: Tensor, k_BHSK: Tensor, encoding: Encoding, context: Context, scale_HT: Tensor | None
) -> Tensor:
    """Scores including the bias, float32 [B, H, T, S], with -inf for hidden keys."""
    bias_HTS = _masked_bias(encoding, context, scale_HT)
    scores_BHTS = encoding.scores(q_BHTK, k_BHSK, context)
    if scores_BHTS is None:
        scores_BHTS = scaled_product(_scaled(q_BHTK, scale_HT), k_BHSK)
        scores_BHTS += bias_HTS
        return scores_BHTS
    return (scores_BHTS.float() if scale_HT is None else scores_BHTS * scale_HT[..., None]) + bias_HTS


class Maps:
    """An `Observer` that keeps the attention weights: `weights`, by layer, float32 [B, H, T, S], 0 for hidden keys.

    length: S, tokens. first: index of the first query that is kept.
    """

    def __init__(self, length: int, first: int = 0) -> None:
        self.length, self.first = length, first
        self.weights: dict[int, Tensor] = {}

    def attended(
        self, layer: int, q_BHTK: Tensor | None, k_BHSK: Tensor | None, weight_BHTS: Tensor, queries: slice, keys: slice
    ) -> None:
        if layer not in self.weights:
            batch, heads = weight_BHTS.shape[:2]
            self.weights[layer] = weight_BHTS.new_zeros(batch, heads, self.length - self.first, self.length)
        rows = slice(queries.start - self.first, queries.stop - self.first)
        self.weights[layer][:, :, rows, keys] = weight_BHTS


@dataclass(frozen=True)
class ResolvedPlan:
    """A plan, and each layer's encoding as changed by the plan and an evaluation's precision: see `Model.resolve`.

    The encodings share the model's parameters and buffers, on its device and in its mode (training or evaluation) when
    the setting was made: make a new one after changing either. queries_per_chunk: queries in a chunk of attention
    (default: QUERIES_PER_CHUNK). observer: receives the attention (default: none). of_layers: the plan of each layer
    (default: `plan`).
    """

    plan: Plan
    encodings: tuple[Encoding, ...]
    queries_per_chunk: int | None = None
    observer: Observer | None = None
    of_layers: tuple[Plan, ...] = ()

    def of_layer(self, layer: int) -> Plan:
        """The plan of a layer, counted from 0."""
        return self.of_layers[layer] if self.of_layers else self.plan

    def smaller(self) -> "ResolvedPlan | None":
        """The same with half the queries in a chunk, for less memory; None if a chunk is a single query."""
        queries = self.queries_per_chunk or QUERIES_PER_CHUNK
        return None if queries == 1 else replace(self, queries_per_chunk=queries // 2)
