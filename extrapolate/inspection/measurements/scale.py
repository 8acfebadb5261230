"""How large the numbers are that pass through a model.

Shapes: W windows, B windows of a batch, N inputs, H heads, T queries, S keys, D width, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extrapolate.encodings.base import Encoding
from extrapolate.inspection.inspected import Chunk, Inspected
from extrapolate.inspection.measurements.base import Measurement, Value, measurements
from extrapolate.model.attention import chunk_context
from extrapolate.model.llama import Attention, Block


@measurements.register("scale")
class Scale(Measurement):
    """The size of what passes through a model, by layer: apart from position, encodings should not differ in it.

    Sizes are root mean squares over channels and inputs, unless a standard deviation is named. A layer with something
    in place of attention has no queries, keys and scores, and one with other weights than a softmax has no scores here.
    """

    quantities: ClassVar = {
        "embedding": ("", "The token embeddings."),
        "added": ("", "The encoding's change to them, before the first block."),
        "stream": ("", "The residual stream into a layer, or out of the last one if the layer is empty."),
        "value_input": ("", "The input of W_v."),
        "query": ("", "The queries, as scored."),
        "key": ("", "The keys, as scored."),
        "value": ("", "The values, as W_v gives them."),
        "score": ("", "The standard deviation of a query's scores over the keys that it sees."),
        "attention_output": ("", "What attention adds to the stream, before any norm."),
        "feed_forward_output": ("", "What the feed-forward network adds to it, before any norm."),
        "logit": ("", "The standard deviation of the logits over the vocabulary."),
    }

    @staticmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        sums = _Squares(inspected)
        with _hooked(inspected, sums):
            inspected.observe(sums.attended, inspected.tokens_WN)
        for (name, layer), square_W in sums.sum_W.items():
            yield Value(name, (square_W / sums.counts[name, layer]).sqrt().numpy(), layer)


class _Squares:
    """Accumulates sums of squares by quantity and layer, float64 [W], and the count of numbers in a window's sum."""

    def __init__(self, inspected: Inspected) -> None:
        self.first, self.windows = inspected.first_query, len(inspected.tokens_WN)
        self.softmax = [_has_softmax(one, inspected.tokens_WN.device) for one in inspected.setting.encodings]
        self.rows = slice(0, 0)
        self.sum_W: dict[tuple[str, int | None], Tensor] = {}
        self.counts: dict[tuple[str, int | None], int] = {}

    def begin(self, windows: int) -> None:
        """Begins the next batch, of `windows` windows."""
        self.rows = slice(self.rows.stop, self.rows.stop + windows)

    def add(self, name: str, layer: int | None, x_BN: Tensor) -> None:
        """Adds the numbers of every window of the batch, [B, ...]."""
        sum_W = self.sum_W.setdefault((name, layer), torch.zeros(self.windows, dtype=torch.float64))
        sum_W[self.rows] += x_BN.double().square().flatten(1).sum(dim=1).cpu()
        if self.rows.start == 0:
            self.counts[name, layer] = self.counts.get((name, layer), 0) + x_BN[0].numel()

    def add_inputs(self, name: str, layer: int | None, x_BND: Tensor) -> None:
        """Adds numbers that every input has, of the inputs that are examined."""
        self.add(name, layer, x_BND[:, self.first :])

    def attended(self, chunk: Chunk) -> None:
        """Adds the queries, keys and scores of a chunk."""
        if chunk.q_BHTK is not None and chunk.k_BHSK is not None:
            self.add("query", chunk.layer, chunk.q_BHTK)
            self.add("key", chunk.layer, chunk.k_BHSK[:, :, -chunk.q_BHTK.shape[2] :])
        if not self.softmax[chunk.layer]:
            return
        # The logarithm of a weight is its score up to a constant that all keys share.
        weight_BHTS = chunk.weight_BHTS.double()
        seen_BHTS = weight_BHTS > 0
        score_BHTS = weight_BHTS.log().masked_fill(~seen_BHTS, 0.0)
        count_BHT1 = seen_BHTS.sum(dim=-1, keepdim=True)
        apart_BHTS = (score_BHTS - score_BHTS.sum(dim=-1, keepdim=True) / count_BHT1).masked_fill(~seen_BHTS, 0.0)
        self.add("score", chunk.layer, (apart_BHTS.square().sum(dim=-1) / count_BHT1[..., 0]).sqrt())


def _has_softmax(encoding: Encoding, device: torch.device) -> bool:
    one_T = torch.zeros(1, device=device)
    scores_BHTS = torch.zeros(1, encoding.dims.heads, 1, 1, device=device)
    return encoding.weights(scores_BHTS, chunk_context(encoding, one_T, one_T, None, 0, 1)) is None


@contextmanager
def _hooked(inspected: Inspected, sums: _Squares) -> Iterator[None]:
    """Hooks into the model's parts to add everything that an observer of attention does not see."""
    model = inspected.decoder
    embedded: list[Tensor] = []

    def at_embedding(module: nn.Module, inputs: Any, x_BND: Tensor) -> None:
        sums.begin(len(x_BND))
        sums.add_inputs("embedding", None, x_BND)
        embedded[:] = [x_BND]

    def at_block(layer: int, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if layer == 0:
            sums.add_inputs("added", None, inputs[0] - embedded.pop())
        sums.add_inputs("stream", layer, inputs[0])

    def at_attention(layer: int, module: nn.Module, inputs: tuple[Any, ...], output_BND: Tensor) -> None:
        x_BND, encoding, pos_N = cast(tuple[Tensor, Encoding, Tensor], inputs[:3])
        value_input_BND = encoding.attention_input(x_BND, pos_N)[1]
        sums.add_inputs("value_input", layer, value_input_BND)
        sums.add_inputs("value", layer, _values(cast(Attention, module), value_input_BND))
        sums.add_inputs("attention_output", layer, output_BND)

    def at_feed_forward(layer: int, module: nn.Module, inputs: Any, output_BND: Tensor) -> None:
        sums.add_inputs("feed_forward_output", layer, output_BND)

    def at_norm(module: nn.Module, inputs: tuple[Tensor], output_BND: Tensor) -> None:
        sums.add_inputs("stream", None, inputs[0])
        logits_BNV = model.head(output_BND[:, sums.first :]).float()
        sums.add("logit", None, logits_BNV.std(dim=-1, correction=0))

    with ExitStack() as hooks:
        hooks.callback(model.embedding.register_forward_hook(at_embedding).remove)
        for layer, block in enumerate(cast(list[Block], list(model.blocks))):
            hooks.callback(block.register_forward_pre_hook(partial(at_block, layer)).remove)
            hooks.callback(block.attention.register_forward_hook(partial(at_attention, layer)).remove)
            hooks.callback(block.feed_forward.register_forward_hook(partial(at_feed_forward, layer)).remove)
        hooks.callback(model.norm.register_forward_hook(at_norm).remove)
        yield


def _values(attention: Attention, x_BND: Tensor) -> Tensor:
    """The output of W_v for all heads."""
    values = attention.sizes[1]
    if type(attention.qkv.weight) not in (nn.Parameter, Tensor):  # quantised, as a whole
        return attention.qkv(x_BND)[..., -values:]
    bias = attention.qkv.bias
    return F.linear(x_BND, attention.qkv.weight[-values:], None if bias is None else bias[-values:])
