"""Everything is made where its inputs are: positions, tables, biases, masks, windows and probes.

The device is torch's "meta", which every machine has: it knows shapes alone. It refuses to give values, which on a GPU
would be to wait for them. What is made on the CPU all the same, on purpose, is in ON_THE_CPU.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import extrapolate
from extrapolate import specs
from extrapolate.encodings.base import encodings
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation.losses import ignored, scores_at, target_losses
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.extensions import stack as stacks
from extrapolate.extensions.base import extensions
from extrapolate.machine.devices import to_device
from extrapolate.model import attention
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

L, N, V = 16, 48, 61
SIZES = ModelConfig(
    vocab_size=V, width=32, layers=2, heads=2, kv_heads=1, head_dim=16, ff_width=48, qk_norm=True, ssmax=True,
    dropout=0.1,
)  # fmt: skip
VARIANTS = [
    "rope:pairing=interleaved", "p-rope:drop=fastest", "pope:delta=uniform", "kerple:kernel=power",
    "fire:shared=true,depth=2", "dape:base=fire", "cope:scaled=true", "fox:form=cable", "expe:learned=fixed",
    "expe:value_input=true", "random:base=alibi", "random:base=learned,evaluate=spread",
    "random:base=shaw,evaluate=first", "random:curriculum=0.5", "pose:base=alibi,curriculum=1", "rfs:base=t5",
]  # fmt: skip
# What each extension is tried on, where that is not RoPE.
BASES = {"expe-scale": "expe", "table-resize": "learned"}
RECIPES = [*extensions.names(), "rerope:k=16", "expe-scale:reading=positions"]
ON_THE_CPU = {
    ("encodings/random.py", "positions"): "they are drawn there, so that a seed gives the same on every device",
    ("encodings/pose.py", "positions"): "as for random",
    ("encodings/rfs.py", "positions"): "as for random",
    ("encodings/training_positions.py", "reach"): "how far those may lie",
    ("encodings/rope.py", "scaled"): "the factors of an extension's frequencies are Python's numbers",
    ("model/branches.py", "_seen"): "whether a pair is seen at all follows from indices; a GPU would be waited for",
    ("extensions/jet_long.py", "refusal"): "it asks whether pairs turn, once for a model",
    ("model/branches.py", "_lag"): "which channels turn, and how fast, follows from the configuration",
    ("evaluation/losses.py", "scores_at"): "batches come from the disk, and losses go back",
}


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no rule for this device."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())


class Watch(TorchDispatchMode):
    """Collects what is made on the CPU by functions that may not, and what is sent in a way that waits for the device.

    Both by the lines of the package that asked for it, the innermost first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: set[tuple[str, ...]] = set()
        self.waits: set[tuple[str, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        tensors = [x for x in tree_leaves(made) if isinstance(x, Tensor)]
        if any(x.device.type == "cpu" for x in tensors) and not ON_THE_CPU.keys() & {place[:2] for place in places()}:
            self.elsewhere.add(tuple(map(str, places())))
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            sources = {x.device.type for x in tree_leaves(args) if isinstance(x, Tensor)}
            if "cpu" in sources and tensors[0].is_meta and not kwargs.get("non_blocking"):
                self.waits.add(tuple(map(str, places())))
        return made


def places() -> list[tuple[str, str, int]]:
    """The file, below the package, function and line of every call of the package's that is under way."""
    root = os.path.dirname(extrapolate.__file__) + os.sep
    found, frame = [], sys._getframe()
    while frame := frame.f_back:
        code = frame.f_code
        if code.co_filename.startswith(root):
            found.append((code.co_filename.removeprefix(root), code.co_name, frame.f_lineno))
    return found


class FromPython(TorchFunctionMode):
    """Refuses to make a tensor of Python's numbers on the device: it would be made on the CPU, and waited for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.as_tensor, torch.scalar_tensor):
            assert not made.is_meta, places()
        return made


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """What happens inside must neither make a tensor elsewhere nor wait for the device."""
    watch = Watch()
    with watch, FromPython():
        yield watch
    assert not watch.elsewhere
    assert not watch.waits


def make(text: str, **settings: bool) -> Model:
    spec = specs.parse(text)
    return Model(SIZES.model_copy(update=settings), spec.name, spec.arguments, L).to("meta")


def tokens_of(length: int) -> Tensor:
    return torch.zeros(2, length, dtype=torch.long, device="meta")


def train(model: Model, plan: Plan, length: int, weight: Tensor | None = None) -> None:
    """A pass forward and back."""
    tokens = tokens_of(length)
    model.loss(tokens, tokens, model.train().resolve(plan), weight).backward()
    assert {p.grad.device.type for p in model.parameters() if p.grad is not None} == {"meta"}


@torch.inference_mode()
def evaluate(model: Model, plan: Plan, length: int) -> None:
    """The last tokens of windows, more than a chunk of them."""
    setting, first = model.eval().resolve(plan, "bf16"), length // 3
    assert model.hidden(tokens_of(length), setting, first).shape == (2, length - first, SIZES.width)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention takes more than one."""
    monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 24)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", encodings.names() + VARIANTS)
def test_every_encoding_computes_where_the_model_is(name: str) -> None:
    model = make(name)
    with watched():
        train(model, PLAIN, L)
        evaluate(model, PLAIN, min(N, model.encoding.max_length or N))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "fox"])
def test_long_windows_are_trained_where_the_model_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the fused kernel, with a bias too, and by explicit scores in chunks."""
    monkeypatch.setattr(attention, "EXPLICIT_UP_TO", L)
    model = make(name)
    with watched():
        train(model, PLAIN, N)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("setting", ["sinks", "output_gate", "differential", "canon"])
def test_what_combines_with_any_encoding_computes_where_the_model_is(setting: str) -> None:
    model = make("fox", **{setting: True})
    with watched():
        train(model, PLAIN, L)
        evaluate(model, PLAIN, N)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("text", RECIPES)
def test_every_extension_is_trained_with_where_the_model_is(text: str) -> None:
    stack = stacks.parse(text)
    if stack.to_fit is not None:
        stack = stack.fitted(0.1)
    model = make(BASES.get(specs.parse(text).name, "rope"))
    plan = stack.plan(model.encoding, L, N)
    assert plan != PLAIN
    with watched():
        train(model, plan, N)


@pytest.mark.parametrize("name", encodings.names())
def test_every_extension_that_applies_computes_where_the_model_is(name: str) -> None:
    if name == "lerope":
        pytest.skip("whether and how fast pairs turn is asked on the CPU, and its frequencies were trained")
    model = make(name)
    with watched():
        for text in stacks.applicable(model):
            stack = stacks.parse(text)
            plan = (stack if stack.to_fit is None else stack.fitted(0.1)).plan(model.encoding, L, N)
            if model.defined_at(N, plan):
                evaluate(model, plan, N)


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shape of everything that is fetched from the device, which has no values: zeros come instead."""
    seen: list[tuple[int, ...]] = []

    def fetch(x: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        return torch.zeros(x.shape, dtype=x.dtype)

    monkeypatch.setattr(Tensor, "cpu", fetch)
    return seen


DOCUMENTS = np.array([170, 200])
SPLIT = SimpleNamespace(
    offsets=np.cumsum([0, *DOCUMENTS]), slice=lambda start, end: np.arange(start, end, dtype=np.uint16) % V
)


@pytest.mark.parametrize("protocol", protocols.names())
def test_an_evaluation_waits_for_the_device_once_and_not_for_each_batch(
    protocol: str, fetches: list[tuple[int, ...]]
) -> None:
    model = make("alibi").eval()
    layout = protocols[protocol]().layout(DOCUMENTS, L, [L, N], 96)
    every = [windows for groups in layout.by_key().values() for windows in groups]
    for windows in every:
        fetches.clear()
        with watched():
            target_losses(model, SPLIT, windows, batch_tokens=windows.length)
        assert fetches == [(1, len(windows.start_W), windows.scored)]
    assert max(len(windows.start_W) for windows in every) > 2  # each in a batch of its own


def test_probes_wait_for_the_device_once(fetches: list[tuple[int, ...]]) -> None:
    model, tokens = make("rope").eval(), np.zeros((6, N + 1), np.int64)
    with watched():
        found = scores_at(
            model, lambda rows: tokens[rows], 6, N, np.array([40, 50]), PLAIN, precision="fp32", likeliest=True,
            batch_tokens=N, progress=ignored,
        )  # fmt: skip
    assert fetches == [(2, 6, 2)]
    assert found.likeliest_WP is not None
    assert found.likeliest_WP.shape == found.loss_WP.shape == (6, 2)


def test_weighted_losses_and_the_norm_of_their_gradients_are_computed_there_too() -> None:
    model = make("fire")
    with watched():
        train(model, PLAIN, L, torch.ones(2, L, device="meta"))
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).is_meta


def test_a_batch_for_a_gpu_goes_through_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch of the CPU's does."""
    pinned, sent = [], []
    batch = torch.arange(3)
    monkeypatch.setattr(Tensor, "pin_memory", lambda x: pinned.append(x) or x)
    assert to_device(batch, "cpu") is batch
    assert not pinned
    monkeypatch.setattr(Tensor, "to", lambda x, device, **named: sent.append((x, str(device), named)))
    to_device(batch, "cuda")
    assert pinned == [batch]
    assert sent == [(batch, "cuda", {"non_blocking": True})]


def bias_on_the_cpu(self: Any, pos_T: Tensor, pos_S: Tensor) -> Tensor:
    return torch.zeros(2, len(pos_T), len(pos_S))


def bias_that_waits(self: Any, pos_T: Tensor, pos_S: Tensor) -> Tensor:
    return bias_on_the_cpu(self, pos_T, pos_S).to(pos_T.device)


def bias_from_python(self: Any, pos_T: Tensor, pos_S: Tensor) -> Tensor:
    return torch.tensor([0.0, 1.0], device=pos_T.device)[:, None, None] * (pos_T[:, None] - pos_S)


def bias_of_a_value(self: Any, pos_T: Tensor, pos_S: Tensor) -> Tensor:
    return torch.zeros(2, len(pos_T), len(pos_S), device=pos_T.device) * pos_T[0].item()


@pytest.mark.parametrize("bias", [bias_on_the_cpu, bias_that_waits, bias_from_python, bias_of_a_value])
def test_these_tests_notice(monkeypatch: pytest.MonkeyPatch, bias: Any) -> None:
    """A bias made elsewhere, sent in a way that waits, made of Python's numbers, or that asks for a value."""
    model = make("alibi")
    monkeypatch.setattr(type(model.encoding), "bias", bias)
    with pytest.raises((RuntimeError, AssertionError)), watched():
        evaluate(model, PLAIN, N)
