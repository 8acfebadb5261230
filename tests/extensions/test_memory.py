"""Nothing the size of all pairs exists at 16 times the training length."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from extrapolate.extensions import stack
from extrapolate.model import attention
from extrapolate.model.model import Model

L, LENGTH, CHUNK, HEADS = 16, 256, 4, 2


class Largest(TorchDispatchMode):
    """The most numbers that any operation made, and what any softmax was taken of."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0
        self.softmax_inputs: list[torch.Size] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "softmax" in str(func):
            self.softmax_inputs.append(args[0].shape)
        made = func(*args, **(kwargs or {}))
        self.numbers = max([self.numbers, *(x.numel() for x in tree_leaves(made) if isinstance(x, Tensor))])
        return made


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        *(("rope", text) for text in ("pi", "yarn", "log-n", "window", "sinks", "lm-infinite")),
        *(("rope", text) for text in ("rerope", "rerope:k=16", "self-extend", "dual-chunk", "rerope + pi + log-n")),
        *(("rope", text) for text in ("jet-long", "jet-long-freq", "string", "mrrope")),
        *(("alibi", text) for text in ("pi", "window", "sinks", "rerope", "self-extend", "dual-chunk", "log-n")),
        *(("shaw", text) for text in ("window", "lm-infinite", "dual-chunk", "temperature:c=0.1")),
        *(("none", text) for text in ("window", "sinks", "log-n")),
        *(("rnope", text) for text in ("window", "sinks", "rerope", "llama4")),
        ("fire", "dual-chunk"), ("expe", "expe-scale"), ("learned", "table-resize"), ("wall", "log-n"),
    ],
)  # fmt: skip
def test_no_path_holds_all_pairs(
    encoding: str,
    text: str,
    make_model: Callable[..., Model],
    logits: Callable[..., Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make_model(encoding, L, heads=HEADS, kv_heads=1, layers=2 if encoding == "rnope" else 1)
    plan = stack.parse(text).plan(model.encoding, L, LENGTH)
    whole = logits(model, LENGTH, plan)
    monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", CHUNK)
    with Largest() as largest:
        chunked = logits(model, LENGTH, plan)
    torch.testing.assert_close(chunked, whole, rtol=1e-3, atol=1e-3)
    assert largest.numbers < LENGTH * LENGTH
    assert all(shape[-2] <= CHUNK for shape in largest.softmax_inputs)
    if plan.pairs is not None:
        # One softmax over every branch, of each chunk and layer.
        assert len(largest.softmax_inputs) == model.config.layers * LENGTH // CHUNK
        assert largest.softmax_inputs[-1] == (1, HEADS, CHUNK, LENGTH)


@pytest.mark.parametrize("encoding", ["rope", "alibi", "none", "shaw"])
def test_a_window_holds_no_keys_before_it(
    encoding: str, make_model: Callable[..., Model], logits: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(encoding, L, heads=HEADS, kv_heads=HEADS, layers=1)
    seen: list[int] = []
    plain = attention.chunk_context

    def spy(*arguments: Any) -> Any:
        context = plain(*arguments)
        seen.append(context.keys.stop - context.keys.start)
        return context

    monkeypatch.setattr(attention, "chunk_context", spy)
    monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", CHUNK)
    logits(model, LENGTH, stack.parse("window:size=5").plan(model.encoding, L, LENGTH))
    assert max(seen) == CHUNK + 5 - 1
