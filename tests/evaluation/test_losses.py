"""Losses of targets, against one forward pass a target; and in which batches a model is run."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from extrapolate.data.shards import schema
from extrapolate.data.store import Split
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation import losses
from extrapolate.evaluation.losses import ignored, target_losses
from extrapolate.evaluation.protocols.base import Windows, protocols
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

V = 50


@pytest.fixture(scope="module")
def split() -> Split:
    """Three documents of random tokens; token 0 ends each."""
    rng = np.random.default_rng(0)
    rows = [[*rng.integers(1, V, size).tolist(), 0] for size in (90, 40, 70)]
    columns = [[[f"d{i}"], [2 * len(row)], [row]] for i, row in enumerate(rows)]
    return Split("test", [pa.record_batch(one, schema=schema("uint16")) for one in columns])


def model(name: str) -> Model:
    torch.manual_seed(0)
    sizes = ModelConfig(vocab_size=V, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=48)
    made = Model(sizes, name, {}, 8).eval()
    with torch.no_grad():  # far enough from uniform that a wrong target shows
        made.head.weight.mul_(20)
    return made


@pytest.mark.parametrize("plan", [PLAIN, Plan(position_scale=0.25)], ids=["plain", "pi"])
@pytest.mark.parametrize("name", ["rope", "alibi", "expe"])
def test_each_target_alone(name: str, plan: Plan, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and chunks of logits of any size give what a window by itself gives, on the document's own tokens."""
    monkeypatch.setattr(losses, "BATCH_TOKENS", 50)
    monkeypatch.setattr(losses, "LOGIT_ELEMENTS", 7 * V)
    made = model(name)
    documents = [split.slice(split.offsets[d], split.offsets[d + 1]).astype(np.int64) for d in range(3)]
    layouts = [protocols[protocol]().layout(split.lengths, 8, [8, 32], 64) for protocol in protocols.names()]
    for group in [group for layout in layouts for group in (*layout.control, *layout.rows[32])]:
        actual = target_losses(made, split, group, plan)
        assert actual.shape == (len(group.start_W), group.scored)
        for row, (d, start) in enumerate(zip(group.document_W, group.start_W, strict=True)):
            window = torch.from_numpy(documents[d][start : start + group.length + 1])
            with torch.no_grad():
                logits = made(window[None, :-1], plan)[0].double()
            by_hand = -logits.log_softmax(-1).gather(-1, window[1:, None])[-group.scored :, 0]
            np.testing.assert_allclose(actual[row], by_hand.numpy(), rtol=0, atol=2e-4)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_precision_rounds_what_the_encoding_stores(split: Split, precision: str) -> None:
    """As the model does by hand, under the same autocast."""
    made = model("sinusoidal")
    group = protocols["windows"]().layout(split.lengths, 8, [8], 64).control[0]
    found = target_losses(made, split, group, precision=precision)
    starts = split.offsets[group.document_W] + group.start_W
    tokens = torch.from_numpy(np.stack([split.slice(start, start + 9) for start in starts]).astype(np.int64))
    by_hand = {}
    for storage in ("fp32", "bf16"):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = made(tokens[:, :-1], made.resolve(PLAIN, storage))
            by_hand[storage] = torch.nn.functional.cross_entropy(logits.float().mT, tokens[:, 1:], reduction="none")
    torch.testing.assert_close(torch.from_numpy(found), by_hand["bf16"], rtol=0, atol=1e-5)
    assert (by_hand["bf16"] - by_hand["fp32"]).abs().max() > 1e-4


def test_int8_is_not_under_autocast(split: Split) -> None:
    """It rounds what enters its linear layers, and what an encoding stores: a model that has neither is as it was."""
    made = model("none")
    group = protocols["windows"]().layout(split.lengths, 8, [8], 64).control[0]
    exact, int8 = (target_losses(made, split, group, precision=precision) for precision in ("fp32", "int8"))
    assert np.array_equal(exact, int8)


def test_several_tokens_at_the_last_place_are_those_of_as_many_windows() -> None:
    made, rng = model("rope"), np.random.default_rng(1)
    tokens_WT, last_WA = rng.integers(V, size=(3, 9)), rng.integers(V, size=(3, 4))
    last_WA[0, 0] = made(torch.from_numpy(tokens_WT[:1, :-1]))[0, -1].argmax()
    places, asked = np.array([2, 7]), {"precision": "fp32", "likeliest": True, "progress": ignored}
    found = losses.scores_at(made, tokens_WT.__getitem__, 3, 8, places, PLAIN, last_WA=last_WA, **asked)
    assert found.loss_WP.shape == found.likeliest_WP.shape == (3, 5)
    for at in range(4):
        windows = np.concatenate([tokens_WT[:, :-1], last_WA[:, at : at + 1]], axis=1)
        own = losses.scores_at(made, windows.__getitem__, 3, 8, places, PLAIN, **asked)
        np.testing.assert_allclose(found.loss_WP[:, [0, 1 + at]], own.loss_WP, rtol=0, atol=1e-6)
        assert np.array_equal(found.likeliest_WP[:, [0, 1 + at]], own.likeliest_WP)
    assert found.likeliest_WP[0, 1]


@pytest.mark.parametrize("name", ["rope", "alibi", "expe"])
def test_memory_of_a_long_window_grows_with_its_length(name: str) -> None:
    """The largest tensor an 8x longer window makes is at most about 8x as large, not 64x."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(tensor, torch.Tensor):
                    self.elements = max(self.elements, tensor.numel())
            return result

    made = model(name)
    sizes = []
    for length in (512, 4096):
        with torch.no_grad(), Largest() as largest:
            made.hidden(torch.zeros(1, length, dtype=torch.long))
        sizes.append(largest.elements)
    assert sizes[1] <= 8.5 * sizes[0]


PLAN = Plan(position_scale=0.5)
DOCUMENTS = [list(range(2, 40)), [7] * 30, list(range(30, 10, -1))]


class Counting:
    """Stands in for a model: token t is followed by t + 1, and by nothing else; what it is given is noted."""

    device, vocab_size = torch.device("cpu"), V

    def __init__(self, parameters: int | None = None) -> None:
        self.parameters = parameters
        self.inputs: list[list[list[int]]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.logits: list[int] = []

    def parameter_count(self) -> int | None:
        return self.parameters

    def resolve(self, plan: Plan, storage: str | None) -> Plan:
        return plan

    def hidden(self, tokens_BT: torch.Tensor, plan: Plan, first: int = 0) -> torch.Tensor:
        self.inputs.append(tokens_BT.tolist())
        self.asked.append((plan, first, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        return tokens_BT[:, first:, None].float()

    def head(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        self.logits.append(len(hidden_ND))
        return 10.0 * torch.nn.functional.one_hot(hidden_ND[:, 0].long() + 1, V)


RIGHT = float(np.log1p((V - 1) * np.exp(-10.0)))  # the loss of what it expects, and of anything else 10 more


@pytest.fixture
def counted() -> SimpleNamespace:
    """DOCUMENTS as a split."""
    stream = np.concatenate(DOCUMENTS).astype(np.uint16)
    offsets = np.cumsum([0, *(len(document) for document in DOCUMENTS)])
    return SimpleNamespace(offsets=offsets, slice=lambda start, end: stream[start:end])


@pytest.mark.parametrize("places", [[0, 1, 2, 3, 4, 5, 6, 7], [5, 6, 7], [1, 4], [7]])
@pytest.mark.parametrize(
    ("batch_tokens", "batches"), [(1000, [5]), (24, [3, 2]), (23, [2, 2, 1]), (8, [1] * 5), (1, [1] * 5)]
)
def test_every_window_is_read_once_in_batches_of_so_many_inputs(
    counted: SimpleNamespace, monkeypatch, batch_tokens: int, batches: list[int], places: list[int]
) -> None:
    monkeypatch.setattr(losses, "LOGIT_ELEMENTS", 3 * V)
    windows = Windows(np.array([0, 0, 1, 2, 2]), np.array([0, 9, 3, 0, 11]), 8, 8)
    model, told = Counting(), []
    options = {"precision": "bf16", "batch_tokens": batch_tokens, "progress": lambda *batch: told.append(batch)}
    found = target_losses(model, counted, windows, PLAN, places_P=np.array(places), **options)
    read = [DOCUMENTS[d][s : s + 9] for d, s in zip(windows.document_W.tolist(), windows.start_W.tolist(), strict=True)]
    assert [row for batch in model.inputs for row in batch] == [window[:8] for window in read]
    assert [len(batch) for batch in model.inputs] == batches
    assert [inputs for inputs, _ in told] == [8 * batch for batch in batches]
    assert model.asked == [(PLAN, places[0], False, True)] * len(batches)
    assert sum(model.logits) == 5 * len(places)
    assert max(model.logits) <= 3
    expected = [[RIGHT + 10 * (window[p + 1] != window[p] + 1) for p in places] for window in read]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32
    assert np.average([loss for _, loss in told], weights=batches) == pytest.approx(found.mean())


@pytest.mark.parametrize(("parameters", "batches"), [(None, 1), (49_999_999, 1), (50_000_000, 5)])
def test_large_models_take_less_at_a_time(counted: SimpleNamespace, parameters: int | None, batches: int) -> None:
    """On a CPU, so that their first losses come soon: five windows of 600 inputs, two of which are more than 1,024."""
    model, documents = (
        Counting(parameters),
        SimpleNamespace(offsets=np.array([0]), slice=lambda start, end: np.zeros(601)),
    )
    target_losses(model, documents, Windows(np.zeros(5, int), np.zeros(5, int), 600, 600), progress=ignored)
    assert [len(batch) for batch in model.inputs] == [5 // batches] * batches


def test_bf16_alone_is_under_autocast_and_is_bfloat16_whatever_its_default(counted: SimpleNamespace) -> None:
    """On GPUs the default is float16."""
    kinds = []

    class Noting(Counting):
        def hidden(self, tokens_BT: torch.Tensor, plan: Plan, first: int = 0) -> torch.Tensor:
            kinds.append(torch.get_autocast_dtype("cpu"))
            return super().hidden(tokens_BT, plan, first)

    before = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    windows = Windows(np.array([0]), np.array([0]), 8, 8)
    exact, rounded = Noting(), Noting()
    try:
        target_losses(exact, counted, windows)
        target_losses(rounded, counted, windows, precision="bf16")
    finally:
        torch.set_autocast_dtype("cpu", before)
    assert [model.asked[0][3] for model in (exact, rounded)] == [False, True]
    assert kinds[1] == torch.bfloat16


def test_a_target_that_is_given_no_number_has_an_infinite_loss_and_is_never_right() -> None:
    """NaN would leave its window, or its whole seed, out of means that then look like those of the others."""
    made = model("rope")
    tokens_WN = np.random.default_rng(0).integers(1, V, (4, 9))
    tokens_WN[:, -1] = 0  # NaN is the largest of all logits to argmax, and token 0 the first of all
    with torch.no_grad():
        made.embedding.weight[tokens_WN[0, 3]] = float("nan")
    found = losses.scores_at(
        made, tokens_WN.__getitem__, 4, 8, np.array([7]), PLAIN, precision="fp32", likeliest=True,
        candidates_WC=np.array([[0, 1]] * 4), progress=ignored,
    )  # fmt: skip
    assert found.likeliest_WP is not None
    assert found.margin_WP is not None
    assert found.chosen_WP is not None
    assert found.loss_WP[0, 0] == np.inf
    assert not found.likeliest_WP[0, 0]
    assert found.margin_WP[0, 0] == -np.inf
    assert found.chosen_WP[0, 0] == 0
    others = [row for row in range(1, 4) if tokens_WN[0, 3] not in tokens_WN[row]]
    assert others
    assert np.isfinite(found.loss_WP[others]).all()
    assert np.isfinite(found.margin_WP[others]).all()
