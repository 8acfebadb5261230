"""Probes are scored right: planted readers, the control's sight, the same windows for all, and rows by hand."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from extrapolate.data.probes.base import DEPTHS, Vocabulary, parse_probe, parse_probes
from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation import losses
from extrapolate.evaluation import probes as probing
from extrapolate.evaluation.probes import Answers, Sequences, check, control_score, evaluate, score
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.work import work_of
from extrapolate.results import PROBES, write
from extrapolate.runs.run import Run
from extrapolate.statistics.intervals import wilson

L = 32


@pytest.fixture(scope="module")
def store(word_store: Store) -> Store:
    return word_store


@pytest.fixture
def run_of(store: Store, random_run: Callable[..., Run]) -> Callable[..., Run]:
    """A run of an encoding on the words."""
    return lambda pe, **options: random_run(store, pe, L, **options)


def settings_of(spec: str, factors: tuple[float, ...] = (1, 4), **more) -> EvaluationSettings:
    return EvaluationSettings(factors, protocols=(), probes=(spec,), **{"trials": 12, **more})


def frame(run: Run, store: Store, settings: EvaluationSettings) -> pd.DataFrame:
    return pd.DataFrame([row for piece in evaluate(work_of(run, store, settings)) for row in piece])


def answered(made: Sequences) -> np.ndarray:
    """The right answers, [W, A]."""
    return made.tokens_WN[:, made.answers_A]


class Reader:
    """Stands in for a model: reads by the rules of the probe from the tokens it is given, or says `blind`."""

    def __init__(self, probe, vocabulary: Vocabulary, blind: int = 0) -> None:
        self.probe, self.vocabulary, self.blind = probe, vocabulary, blind
        self.device, self.vocab_size = torch.device("cpu"), vocabulary.size
        self.seen: list[int] = []

    def says(self, tokens: np.ndarray) -> int:
        """What comes after these tokens."""
        marks = np.flatnonzero(tokens == self.vocabulary.marker(self.probe.marker))
        if len(marks) < 2:
            return self.blind
        first, last = marks[[0, -1]]
        if self.probe.name in ("mqar", "digression"):
            at = np.flatnonzero(tokens[first:last] == tokens[-1])
            return int(tokens[first + at[0] + 1]) if len(at) else self.blind
        return int(tokens[first + len(tokens) - last])

    def parameter_count(self) -> int | None:
        return None

    def resolve(self, plan: Plan, storage: str) -> Plan:
        return plan

    def hidden(self, tokens_BT: torch.Tensor, plan, first: int = 0) -> torch.Tensor:
        self.seen.append(tokens_BT.shape[1])
        rows = [[self.says(row[: t + 1]) for t in range(first, len(row))] for row in tokens_BT.numpy()]
        return torch.nn.functional.one_hot(torch.tensor(rows), self.vocabulary.size).float() * 100

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


@pytest.mark.parametrize("spec", ["needle", "passkey", "copy", "mqar", "digression"])
def test_a_perfect_reader_is_right_and_cut_back_sees_the_last_l_alone(store: Store, spec: str) -> None:
    probe, vocabulary, split = parse_probe(spec), Vocabulary.of(store), store.split("test")
    for length in (L, 4 * L):
        for depth in DEPTHS:
            made = Sequences.make(probe, length, depth, 6, store, split)
            reader = Reader(probe, vocabulary)
            found = score(reader, made.tokens_WN, made.answers_A, made.candidates_WC)
            assert found.right_WA.shape == (6, len(made.answers_A))
            assert found.right_WA.all()
            assert found.loss_WA.max() < 1e-6
            others = (made.candidates_WC[:, None] >= 0) & (made.candidates_WC[:, None] != answered(made)[:, :, None])
            assert np.array_equal(found.margin_WA, np.where(others.any(axis=2), 100, np.nan), equal_nan=True)
            assert np.array_equal(found.chosen_WA, np.where(others.any(axis=2), 1, np.nan), equal_nan=True)
            assert set(reader.seen) == {length}
            reader.seen.clear()
            control = control_score(reader, made, L)
            assert control.right_WA.shape == found.right_WA.shape
            assert set(reader.seen) <= set(range(L // 2, L + 1)) | {L}
            first = np.flatnonzero(made.tokens_WN[0] == vocabulary.marker(probe.marker))[0]
            if spec != "copy" or length == L:  # one window of L inputs: the block is in it, whole, or its marker is not
                assert (control.right_WA == (first >= length - L)).all()
            else:  # sixteen tokens apart or more, the string begins beyond the last L of most windows
                assert control.right_WA.mean() < 0.5


def test_the_control_of_many_answers_scores_each_once_with_between_half_l_and_l_tokens(store: Store, run_of) -> None:
    """Against one forward pass an answer."""
    run = run_of("rope")
    model = run.load_model(run.checkpoints("last")[0])
    made = Sequences.make(parse_probe("copy"), 8 * L, 0.5, 3, store, store.split("test"))
    assert len(made.answers_A) == 2 * L
    control = control_score(model, made, L)
    last = 8 * L
    for place, at in enumerate(made.answers_A):
        # Windows end at the last token and every L/2 tokens before it.
        end = last - (last - at) // (L // 2) * (L // 2)
        cut = torch.from_numpy(made.tokens_WN[:, end - L : at])
        assert L // 2 <= cut.shape[1] <= L
        with torch.inference_mode():
            logits = model(cut)[:, -1]
        target = torch.from_numpy(made.tokens_WN[:, at])
        assert control.right_WA[:, place].tolist() == (logits.argmax(-1) == target).tolist()
        expected = torch.nn.functional.cross_entropy(logits, target, reduction="none")
        np.testing.assert_allclose(control.loss_WA[:, place], expected.numpy(), rtol=1e-4, atol=1e-5)


def test_scores_are_the_models_in_batches_of_any_size(store: Store, run_of, monkeypatch) -> None:
    run = run_of("alibi")
    model = run.load_model(run.checkpoints("last")[0])
    made = Sequences.make(parse_probe("mqar"), 2 * L, 0.25, 7, store, store.split("test"))
    with torch.inference_mode():
        logits = model(torch.from_numpy(made.tokens_WN[:, :-1]))[:, made.answers_A - 1]
    target = torch.from_numpy(made.tokens_WN[:, made.answers_A])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(7, 2)
    for batch, elements in ((8192, 2**24), (3 * 2 * L, 1)):
        monkeypatch.setattr(losses, "BATCH_TOKENS", batch)
        monkeypatch.setattr(losses, "LOGIT_ELEMENTS", elements)
        told: dict[float, int] = {}  # inputs by the loss of the batch
        found = score(
            model, made.tokens_WN, made.answers_A, made.candidates_WC,
            progress=lambda inputs, loss, told=told: told.update({loss: inputs}),
        )  # fmt: skip
        np.testing.assert_allclose(found.loss_WA, loss.numpy(), rtol=1e-4, atol=1e-5)
        assert (found.right_WA == (logits.argmax(-1) == target).numpy()).all()
        assert sum(told.values()) == 7 * 2 * L


def test_rows_count_and_fit_their_table(store: Store, run_of, tmp_path: Path) -> None:
    settings = settings_of("passkey,mqar", extend=("pi",))
    pieces = list(evaluate(work_of(run_of("rope"), store, settings)))
    write(tmp_path / "t.parquet", [row for piece in pieces for row in piece], PROBES)
    rows = pd.DataFrame([row for piece in pieces for row in piece])
    assert len(rows) == 2 * 2 * 2 * len(DEPTHS)
    assert set(rows["probe"]) == {"passkey", "mqar"}
    assert set(rows["depth"]) == set(DEPTHS)
    assert set(rows["model"]) == {"RoPE", "RoPE + PI"}
    assert set(rows["n_trials"]) == {12}
    assert rows.groupby("probe")["n_answers"].first().to_dict() == {"passkey": 48, "mqar": 24}
    assert ((rows["low"] <= rows["accuracy"]) & (rows["accuracy"] <= rows["high"])).all()
    # The control knows no extension.
    assert (rows.groupby(["probe", "length", "depth"])["control_loss"].nunique() == 1).all()
    assert rows.groupby("probe")["choice_chance"].min()["passkey"] == 1 / 16
    assert rows.query("probe == 'mqar'")["choice_chance"].between(1 / 4, 1 / 2).all()
    assert rows["choice"].between(0, 1).all()
    assert (rows["margin_stderr"] > 0).all()
    # One window of L inputs: at 1x the plain model is its own control.
    plain = rows[(rows["factor"] == 1) & (rows["extension"] == "as-trained")]
    np.testing.assert_allclose(plain["loss"], plain["control_loss"], rtol=1e-5)
    np.testing.assert_allclose(plain["margin"], plain["control_margin"], atol=1e-5)
    assert (plain["accuracy"] == plain["control_accuracy"]).all()


def test_all_runs_and_extensions_see_the_same_windows(store: Store, run_of) -> None:
    settings = settings_of("copy", factors=(1, 2), extend=("log-n",))
    one, other = frame(run_of("rope"), store, settings), frame(run_of("none", seed=3), store, settings)
    where = ["extension", "length", "depth"]
    hashes = [rows.set_index(where)["targets_hash"].sort_index() for rows in (one, other)]
    assert hashes[0].equals(hashes[1])
    assert one["targets_hash"].nunique() == 2 * len(DEPTHS)
    fewer = frame(run_of("rope"), store, settings_of("copy", factors=(1, 2), trials=5))
    assert not set(fewer["targets_hash"]) & set(one["targets_hash"])


def test_equal_plans_are_computed_once_and_the_control_with_them(store: Store, run_of, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(probing, "score", lambda *a, **k: calls.append(a[4]) or score(*a, **k))
    frame(run_of("rope"), store, settings_of("needle", extend=("pi",)))
    # At each depth: the control, twice; plain, twice; pi at 4x, which at 1x is plain.
    assert len(calls) == len(DEPTHS) * 5
    assert sum(plan != PLAIN for plan in calls) == len(DEPTHS)


def test_beyond_its_table_an_encoding_has_no_accuracy_but_a_control(store: Store, run_of) -> None:
    rows = frame(run_of("learned"), store, settings_of("passkey"))
    beyond = rows["factor"] == 4
    for column in ("accuracy", "low", "high", "loss"):
        assert rows[beyond][column].isna().all()
        assert rows[~beyond][column].notna().all()
    assert rows["control_accuracy"].notna().all()


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_row_and_its_control_have_its_precision(store: Store, run_of, precision: str) -> None:
    """What the encoding stores included: at 1x the plain model is its own control."""
    rows = frame(run_of("rope"), store, settings_of("needle", factors=(1,), precisions=("fp32", precision)))
    assert rows["loss"].tolist() == rows["control_loss"].tolist()
    exact, rounded = (rows[rows["precision"] == one]["loss"].to_numpy() for one in ("fp32", precision))
    assert (exact != rounded).any()
    np.testing.assert_allclose(exact, rounded, rtol=0.1)


def test_a_rate_is_of_the_time_that_scoring_takes(store: Store, run_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "score", lambda *a, **k: time.sleep(0.02) or score(*a, **k))
    monkeypatch.setattr(probing, "peak_mib", lambda device: 3.5 if device == "cpu" else None)
    began = time.perf_counter()
    rows = frame(run_of("none"), store, settings_of("copy", factors=(1,), trials=4))
    elapsed = time.perf_counter() - began
    assert ((4 * L / elapsed < rows["tokens_per_s"]) & (rows["tokens_per_s"] <= 4 * L / 0.02)).all()
    assert set(rows["peak_mib"]) == {3.5}


def test_what_cannot_be_evaluated_is_refused(store: Store, run_of) -> None:
    run = run_of("rope")
    check(work_of(run, store, settings_of("passkey")))
    for spec, factors, more, message in (
        ("passkey:length=20", (1,), {}, "takes at least 41 tokens, and a window has 32"),
        ("mqar:symbols=200", (1,), {}, "vocabulary of at least 405"),
        ("needle", (1000,), {}, "do not fill a window of 32000"),
        ("needle", (1,), {"trials": 0}, "`trials` must be at least 1"),
        ("needle", (1,), {"trials": 10**12}, "`trials=1000000000000` windows of .* tokens take at least .* GB"),
    ):
        with pytest.raises(ValueError, match=message):
            check(work_of(run, store, settings_of(spec, factors, **more)))


RIGHT_WA = np.array([[True, False, True, True], [True, True, True, True], [False, False, False, False]])
LOSS_WA = np.arange(12, dtype=np.float32).reshape(3, 4)
# The last window has no other candidates, and one answer of the second has none.
MARGIN_WA = np.array([[1, 2, 3, 6], [-1, np.nan, -2, 0], [np.nan] * 4], np.float32)
CHOSEN_WA = np.array([[1, 1, 1, 0], [0, np.nan, 0, 1], [np.nan] * 4], np.float32)
CHOICES_W = np.array([4, 2, 1])
OVER = ("margin", "margin_stderr", "choice", "control_margin", "choice_chance")


def test_a_problem_without_text_is_evaluated_at_one_depth_with_the_chance_of_each_length(run_of, store: Store) -> None:
    run = run_of("rope")
    rows = frame(run, store, settings_of("addition", (0.5, 1, 2), trials=3))
    assert rows[["length", "depth", "n_trials"]].to_numpy().tolist() == [[16, 1, 3], [32, 1, 3], [64, 1, 3]]
    assert rows["chance"].tolist() == [pytest.approx(10.0**-digits) for digits in (4, 10, 20)]
    assert rows["n_answers"].tolist() == [12, 30, 60]


def test_an_infinite_margin_has_no_error_and_is_not_left_out() -> None:
    found = Answers(RIGHT_WA, LOSS_WA, np.array([[1.0], [-np.inf], [2.0]]), np.ones((3, 1))).over_candidates()
    assert found == {"margin": -np.inf, "margin_stderr": None, "choice": 1.0}


@pytest.mark.parametrize("name", ["passkey", "copy"])
def test_a_row_holds_the_means_of_its_scores_and_of_its_controls(name: str) -> None:
    probe = parse_probe(name)
    assert probe.whole == (name == "passkey")
    scores = Answers(RIGHT_WA, LOSS_WA, MARGIN_WA, CHOSEN_WA)
    control = Answers(~RIGHT_WA, LOSS_WA + 1, MARGIN_WA - 1, CHOSEN_WA)
    row = probing._row({"run": "r", "length": 64}, probe, (scores, 250.0, 12.5), control, CHOICES_W)
    accuracy = 1 / 3 if probe.whole else 7 / 12
    assert row["run"] == "r"
    assert row["accuracy"] == pytest.approx(accuracy)
    assert (row["low"], row["high"]) == pytest.approx(wilson(accuracy, 3))
    assert row["loss"] == pytest.approx(5.5)
    assert row["control_accuracy"] == pytest.approx(1 / 3 if probe.whole else 5 / 12)
    assert row["control_loss"] == pytest.approx(6.5)
    # Of the means of two windows, 3 and -1, and their standard deviation, 2 sqrt 2, divided by sqrt 2.
    assert [row[name] for name in OVER] == pytest.approx([1, 2, (3 / 4 + 1 / 3) / 2, 0, (1 / 4 + 1 / 2) / 2])
    assert row["chance"] == probe.chance_at(64)
    assert (row["n_trials"], row["n_answers"]) == (3, 12)
    assert (row["tokens_per_s"], row["peak_mib"]) == (250.0, 12.5)
    assert row["evaluated_at"].utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - row["evaluated_at"]) < timedelta(minutes=1)


def test_a_row_without_scores_has_its_control_alone() -> None:
    control = Answers(RIGHT_WA, LOSS_WA, MARGIN_WA, CHOSEN_WA)
    row = probing._row({"length": 64}, parse_probe("copy"), None, control, CHOICES_W)
    for name in ("accuracy", "low", "high", "loss", "margin", "margin_stderr", "choice", "tokens_per_s", "peak_mib"):
        assert row[name] is None, name
    assert row["control_loss"] == pytest.approx(5.5)
    assert row["control_margin"] == pytest.approx(1)


def test_without_other_candidates_there_is_no_margin_and_with_one_window_no_error() -> None:
    one, none = (Answers(RIGHT_WA[:1], LOSS_WA[:1], MARGIN_WA[at : at + 1], CHOSEN_WA[at : at + 1]) for at in (0, 2))
    row = probing._row({"length": 64}, parse_probe("copy"), (one, 1.0, None), none, np.array([1]))
    assert [row[name] for name in OVER] == [3, None, 0.75, None, None]
    row = probing._row({"length": 64}, parse_probe("copy"), (none, 1.0, None), one, np.array([4]))
    assert [row[name] for name in OVER] == [None, None, None, 3, 0.25]


@pytest.mark.parametrize(
    "spec", ["needle", "copy", "mqar", "(mqar:pairs=2,queries=1,symbols=2)", "tracking", "digression", "flip-flop"]
)
def test_margins_and_choices_are_those_of_a_loop_over_the_candidates(
    store: Store, run_of, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, from the losses of a model with random weights; the candidates as the probe's text shows them."""
    monkeypatch.setattr(losses, "BATCH_TOKENS", 4 * 2 * L)
    monkeypatch.setattr(losses, "LOGIT_ELEMENTS", 3 * Vocabulary.of(store).size)
    run, (probe,), vocabulary = run_of("alibi"), parse_probes(spec), Vocabulary.of(store)
    model = run.load_model(run.checkpoints("last")[0])
    made = Sequences.make(probe, 2 * L, 0.25, 9, store, store.split("test"))
    found = score(model, made.tokens_WN, made.answers_A, made.candidates_WC)
    with torch.inference_mode():
        loss_WTV = -model(torch.from_numpy(made.tokens_WN[:, :-1])).double().log_softmax(dim=-1).numpy()
    values = set(vocabulary.symbols(probe.symbols).tolist())
    for w, tokens in enumerate(made.tokens_WN):
        candidates = values & set(tokens[-5:].tolist()) if spec == "digression" else values
        if probe.name in ("mqar", "tracking"):
            first = int(np.flatnonzero(tokens == vocabulary.marker(probe.marker))[0])
            size = 2 * probe.pairs if probe.name == "mqar" else 2 * probe.chains * (probe.hops + 1)
            candidates = values & set(tokens[first + 1 : first + 1 + size].tolist())
        assert sorted(made.candidates_WC[w][made.candidates_WC[w] >= 0].tolist()) == sorted(candidates)
        for a, at in enumerate(made.answers_A):
            right = loss_WTV[w, at - 1, tokens[at]]
            others = [loss_WTV[w, at - 1, token] for token in candidates if token != tokens[at]]
            if others:
                assert found.margin_WA[w, a] == pytest.approx(np.mean(others) - right, abs=1e-5)
                assert found.chosen_WA[w, a] == (right < min(others))
            else:
                assert np.isnan([found.margin_WA[w, a], found.chosen_WA[w, a]]).all()
    if "symbols=2" in spec:
        assert 0 < np.isnan(found.margin_WA).mean() < 1


class Spy:
    """Stands in for a model: notes the inputs of every window, and finds 0 the likeliest of two tokens."""

    device, vocab_size = torch.device("cpu"), 2

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def parameter_count(self) -> int | None:
        return None

    def resolve(self, plan: Plan, storage: str) -> Plan:
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
    sequences = Sequences(tokens_WN, np.array(answers), "", np.array([[0, 1]]))
    control = control_score(model, sequences, seq_len, progress=lambda inputs, loss: told.append(inputs))
    assert control.margin_WA.tolist() == [[1.0] * len(answers)]
    assert control.right_WA.tolist() == [[True] * len(answers)]
    expected = [[0 if place in answers else place for place in window] for window in windows]
    assert sorted(model.seen) == sorted(expected)
    assert sum(told) == sum(len(window) for window in windows)
