"""How losses are computed: every window once, in batches that hold so many inputs, logits for what is wanted alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from extrapolate.encodings.plan import Plan
from extrapolate.evaluation import losses
from extrapolate.evaluation.losses import losses_at, target_losses
from extrapolate.evaluation.probes import score
from extrapolate.evaluation.protocols.base import Windows

V = 50
PLAN = Plan(position_scale=0.5)
DOCUMENTS = [list(range(2, 40)), [7] * 30, list(range(30, 10, -1))]


class Counting:
    """Stands in for a model: token t is followed by t + 1, and by nothing else; what it is given is noted."""

    device, vocab_size = torch.device("cpu"), V

    def __init__(self) -> None:
        self.inputs: list[list[list[int]]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.logits: list[int] = []

    def setting(self, plan: Plan, storage: str | None) -> Plan:
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
def split() -> SimpleNamespace:
    stream = np.concatenate(DOCUMENTS).astype(np.uint16)
    offsets = np.cumsum([0, *(len(document) for document in DOCUMENTS)])
    return SimpleNamespace(offsets=offsets, slice=lambda start, end: stream[start:end])


@pytest.mark.parametrize("places", [[0, 1, 2, 3, 4, 5, 6, 7], [5, 6, 7], [1, 4], [7]])
@pytest.mark.parametrize(
    ("batch_tokens", "batches"), [(1000, [5]), (24, [3, 2]), (23, [2, 2, 1]), (8, [1] * 5), (1, [1] * 5)]
)
def test_every_window_is_read_once_in_batches_of_so_many_inputs(
    split: SimpleNamespace, monkeypatch, batch_tokens: int, batches: list[int], places: list[int]
) -> None:
    monkeypatch.setattr(losses, "LOGIT_ELEMENTS", 3 * V)
    windows = Windows(np.array([0, 0, 1, 2, 2]), np.array([0, 9, 3, 0, 11]), 8, 8)
    model, told = Counting(), []
    found = losses_at(
        model, split, windows, np.array(places), PLAN, precision="bf16", batch_tokens=batch_tokens, progress=told.append
    )
    read = [DOCUMENTS[d][s : s + 9] for d, s in zip(windows.document_W.tolist(), windows.start_W.tolist(), strict=True)]
    assert [row for batch in model.inputs for row in batch] == [window[:8] for window in read]
    assert [len(batch) for batch in model.inputs] == batches
    assert told == [8 * batch for batch in batches]
    assert model.asked == [(PLAN, places[0], False, True)] * len(batches)
    assert sum(model.logits) == 5 * len(places)
    assert max(model.logits) <= 3
    expected = [[RIGHT + 10 * (window[p + 1] != window[p] + 1) for p in places] for window in read]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize(("batch_tokens", "batches"), [(1000, [4]), (24, [2, 2]), (35, [2, 2]), (1, [1] * 4)])
def test_probes_are_read_once_in_batches_too(monkeypatch, batch_tokens: int, batches: list[int]) -> None:
    monkeypatch.setattr(losses, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(losses, "LOGIT_ELEMENTS", 3 * V)
    tokens_WN = np.array([range(2, 15), range(20, 33), [9] * 13, range(40, 27, -1)])
    answers_A = np.array([5, 6, 12])
    model, told = Counting(), []
    found = score(model, tokens_WN, answers_A, PLAN, precision="bf16", progress=told.append)
    assert [row for batch in model.inputs for row in batch] == tokens_WN[:, :-1].tolist()
    assert [len(batch) for batch in model.inputs] == batches
    assert told == [12 * batch for batch in batches]
    assert model.asked == [(PLAN, 4, False, True)] * len(batches)
    assert sum(model.logits) == 12
    assert max(model.logits) <= 3
    assert found.right_WA.tolist() == [[True] * 3, [True] * 3, [False] * 3, [False] * 3]
    assert (found.right_WA.dtype, found.loss_WA.dtype) == (bool, np.float32)
    np.testing.assert_allclose(found.loss_WA, [[RIGHT] * 3] * 2 + [[RIGHT + 10] * 3] * 2, rtol=1e-5, atol=1e-6)


def test_targets_are_read_in_such_batches_too(split: SimpleNamespace) -> None:
    model = Counting()
    windows = Windows(np.array([0, 0, 1, 2, 2]), np.array([0, 9, 3, 0, 11]), 8, 3)
    found = target_losses(model, split, windows, PLAN, batch_tokens=24)
    assert [len(batch) for batch in model.inputs] == [3, 2]
    assert found.shape == (5, 3)


def test_in_float32_there_is_no_autocast(split: SimpleNamespace) -> None:
    model = Counting()
    losses_at(model, split, Windows(np.array([0]), np.array([0]), 8, 8), np.arange(8))
    score(model, np.arange(2, 12)[None], np.array([4]))
    assert [asked[3] for asked in model.asked] == [False, False]


def test_bf16_is_bfloat16_whatever_autocast_has_for_a_default(split: SimpleNamespace) -> None:
    """On GPUs the default is float16."""
    kinds = []

    class Noting(Counting):
        def hidden(self, tokens_BT: torch.Tensor, plan: Plan, first: int = 0) -> torch.Tensor:
            kinds.append(torch.get_autocast_dtype("cpu"))
            return super().hidden(tokens_BT, plan, first)

    before = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        windows = Windows(np.array([0]), np.array([0]), 8, 8)
        losses_at(Noting(), split, windows, np.arange(8), precision="bf16")
        score(Noting(), np.arange(2, 12)[None], np.array([4]), precision="bf16")
    finally:
        torch.set_autocast_dtype("cpu", before)
    assert kinds == [torch.bfloat16] * 2
