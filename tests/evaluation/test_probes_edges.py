"""Probes' numbers by hand: accuracies, rows, what is counted, and windows around L."""

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from extrapolate.data.probes.base import Probe, parse_probe
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation import probes as probing
from extrapolate.evaluation.probes import Answers, Sequences, control_score
from extrapolate.statistics.intervals import wilson

RIGHT_WA = np.array([[True, False, True, True], [True, True, True, True], [False, False, False, False]])
LOSS_WA = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_accuracy_is_of_whole_windows_or_a_share_of_answers() -> None:
    scores = Answers(RIGHT_WA, LOSS_WA)
    assert scores.per_window(whole=True).tolist() == [0, 1, 0]
    assert scores.per_window(whole=False).tolist() == [0.75, 1, 0]


@pytest.mark.parametrize("name", ["passkey", "copy"])
def test_a_row_holds_the_means_of_its_scores_and_of_its_controls(name: str) -> None:
    probe: Probe = parse_probe(name)
    scores, control = Answers(RIGHT_WA, LOSS_WA), Answers(~RIGHT_WA, LOSS_WA + 1)
    row = probing._row({"run": "r"}, probe, (scores, 250.0, 12.5), control)
    accuracy = 1 / 3 if probe.whole else 7 / 12
    assert row["run"] == "r"
    assert row["accuracy"] == pytest.approx(accuracy)
    assert (row["low"], row["high"]) == pytest.approx(wilson(accuracy, 3))
    assert row["loss"] == pytest.approx(5.5)
    assert row["control_accuracy"] == pytest.approx(1 / 3 if probe.whole else 5 / 12)
    assert row["control_loss"] == pytest.approx(6.5)
    assert row["chance"] == probe.chance
    assert (row["n_trials"], row["n_answers"]) == (3, 12)
    assert (row["tokens_per_s"], row["peak_mib"]) == (250.0, 12.5)
    assert row["evaluated_at"].utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - row["evaluated_at"]) < timedelta(minutes=1)


def test_some_probe_counts_whole_windows_and_some_does_not() -> None:
    assert {parse_probe(name).whole for name in ("passkey", "copy")} == {True, False}


def test_a_row_without_scores_has_its_control_alone() -> None:
    row = probing._row({}, parse_probe("copy"), None, Answers(RIGHT_WA, LOSS_WA))
    for name in ("accuracy", "low", "high", "loss", "tokens_per_s", "peak_mib"):
        assert row[name] is None, name
    assert row["control_loss"] == pytest.approx(5.5)


class Spy:
    """Stands in for a model: notes the inputs of every window, and finds 0 the likeliest of two tokens."""

    device, vocab_size = torch.device("cpu"), 2

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def setting(self, plan: Plan, storage: str) -> Plan:
        return plan

    def hidden(self, tokens_BT: torch.Tensor, plan: object, first: int = 0) -> torch.Tensor:
        self.seen.extend(tokens_BT.tolist())
        return torch.tensor([1.0, 0.0]).expand(len(tokens_BT), tokens_BT.shape[1] - first, 2)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


@pytest.mark.parametrize(
    ("seq_len", "answers", "windows"),
    [
        # The last input is 19, which predicts 20.
        (8, [20], [range(12, 20)]),
        (8, [17, 20], [range(12, 20)]),
        # Answers at 16 and before have fewer than L/2 inputs in the last window: another ends at 16.
        (8, [16, 17, 20], [range(12, 20), range(8, 16)]),
        (8, [12, 16, 20], [range(12, 20), range(8, 16), range(4, 12)]),
        # The window that ends there begins with the text.
        (8, [4, 20], [range(12, 20), range(4)]),
        (30, [2, 20], [range(20), range(2)]),
        (1, [19, 20], [range(19, 20), range(18, 19)]),
    ],
)
def test_the_control_sees_windows_of_l_that_end_at_the_answers(
    seq_len: int, answers: list[int], windows: list[range]
) -> None:
    tokens_WN = np.arange(21)[None].copy()
    tokens_WN[0, answers] = 0  # every answer is right
    model, told = Spy(), []
    control = control_score(model, Sequences(tokens_WN, np.array(answers), ""), seq_len, progress=told.append)
    assert control.right_WA.tolist() == [[True] * len(answers)]
    expected = [[0 if place in answers else place for place in window] for window in windows]
    assert sorted(model.seen) == sorted(expected)
    assert sum(told) == sum(len(window) for window in windows)


def test_the_cost_of_scores_is_of_the_models_device_and_of_their_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, scored = [], []
    monkeypatch.setattr(probing, "forget_peak", asked.append)
    monkeypatch.setattr(probing, "peak_mib", lambda device: asked.append(device) or 3.5)

    def score(model: Spy, tokens_WN: np.ndarray, answers_A: np.ndarray, plan: Plan, *, precision, progress) -> Answers:
        scored.append((plan, precision))
        time.sleep(0.05)
        progress(80)
        return Answers(RIGHT_WA, LOSS_WA)

    monkeypatch.setattr(probing, "score", score)
    store = SimpleNamespace(split=lambda name: name)
    settings = SimpleNamespace(split="test", trials=4)
    evaluation = probing._ProbeEvaluation(Spy(), parse_probe("copy"), store, settings, "bf16", PLAIN, lambda *_: None)
    made = Sequences(np.zeros((4, 21), np.int64), np.array([20]), "")
    evaluation._sequences[20, 0.5] = made, Answers(RIGHT_WA, LOSS_WA)
    told: list[int] = []
    began = time.perf_counter()
    found, rate, peak = evaluation.scores(20, 0.5, PLAIN, told.append)
    elapsed = time.perf_counter() - began
    assert found.right_WA is RIGHT_WA
    assert 4 * 20 / elapsed <= rate <= 4 * 20 / 0.05
    assert (peak, asked, told) == (3.5, ["cpu", "cpu"], [80])
    assert scored == [(PLAIN, "bf16")]
    assert evaluation.scores(20, 0.5, PLAIN, told.append) == (found, rate, peak)
    assert len(scored) == 1
