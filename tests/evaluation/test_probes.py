"""Probes are scored right: planted readers, the control's sight, the same windows for all, intervals."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.probes.base import Vocabulary, parse_probe
from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation import losses
from extrapolate.evaluation import probes as probing
from extrapolate.evaluation.probes import DEPTHS, Sequences, check, control_score, evaluate, score
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.results import PROBES, write
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run
from extrapolate.statistics.intervals import wilson

L = 32


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    rng = np.random.default_rng(0)
    words = ["red", "green", "stone", "river", "cloud", "sings", "falls", "grows", "slowly"]
    documents = [Document(str(i), " ".join(rng.choice(words, 300))) for i in range(12)]
    settings = StoreSettings(source="words", vocab_size=280, min_heldout_tokens=200)
    return build_store(documents, settings, tmp_path_factory.mktemp("data") / "words")


@pytest.fixture(scope="module")
def run_of(store: Store, tmp_path_factory: pytest.TempPathFactory):
    """A run with random weights, scaled up so that tokens differ."""

    def make(pe: str, seed: int = 0) -> Run:
        sizes = {"width": 32, "layers": 2, "heads": 2, "head_dim": 16, "ff_width": 48}
        config, _ = resolve(TrainingRequest(pe=pe, model=sizes, training={"seq_len": L, "tokens": 8192}), store)
        run = Run.create(tmp_path_factory.mktemp("runs") / pe, config, (store.path / "tokenizer.json").read_bytes())
        torch.manual_seed(seed)
        model = run.build_model()
        with torch.no_grad():
            model.head.weight.mul_(20)
            model.blocks[0].attention.qkv.weight.mul_(10)
        run.save_weights(model, 32, 8192, final=True)
        return run

    return make


def settings_of(spec: str, factors: tuple[float, ...] = (1, 4), **more) -> EvaluationSettings:
    return EvaluationSettings(factors, protocols=(), probes=(spec,), **{"trials": 12, **more})


def frame(run: Run, store: Store, settings: EvaluationSettings) -> pd.DataFrame:
    return pd.DataFrame([row for piece in evaluate(run, store, settings) for row in piece])


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
        if self.probe.name == "mqar":
            at = np.flatnonzero(tokens[first:last] == tokens[-1])
            return int(tokens[first + at[0] + 1]) if len(at) else self.blind
        return int(tokens[first + len(tokens) - last])

    def setting(self, plan: Plan, storage: str) -> Plan:
        return plan

    def hidden(self, tokens_BT: torch.Tensor, plan, first: int = 0) -> torch.Tensor:
        self.seen.append(tokens_BT.shape[1])
        rows = [[self.says(row[: t + 1]) for t in range(len(row))] for row in tokens_BT.numpy()]
        return torch.nn.functional.one_hot(torch.tensor(rows), self.vocabulary.size)[:, first:].float() * 100

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


@pytest.mark.parametrize("spec", ["needle", "passkey", "copy", "mqar"])
def test_a_perfect_reader_is_right_and_cut_back_sees_the_last_l_alone(store: Store, spec: str) -> None:
    probe, vocabulary, split = parse_probe(spec), Vocabulary.of(store), store.split("test")
    for length in (L, 4 * L):
        for depth in DEPTHS:
            made = Sequences.make(probe, length, depth, 6, store, split)
            reader = Reader(probe, vocabulary)
            found = score(reader, made.tokens_WN, made.answers_A)
            assert found.right_WA.shape == (6, len(made.answers_A))
            assert found.right_WA.all()
            assert found.loss_WA.max() < 1e-6
            assert set(reader.seen) == {length}
            reader.seen.clear()
            control = control_score(reader, made, L)
            assert control.right_WA.shape == found.right_WA.shape
            assert set(reader.seen) <= set(range(L // 2, L + 1)) | {L}
            first = np.flatnonzero(made.tokens_WN[0] == vocabulary.marker(probe.marker))[0]
            if spec != "copy":  # one window of L inputs: the block is in it, whole, or its marker is not
                assert control.right_WA.all() == (first >= length - L)
                assert control.right_WA.any() == (first >= length - L)
            elif length == L:
                assert control.right_WA.all()
            else:
                # Sixteen tokens apart or more, the string begins beyond the last L of most windows.
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
        told: list[int] = []
        found = score(model, made.tokens_WN, made.answers_A, progress=told.append)
        np.testing.assert_allclose(found.loss_WA, loss.numpy(), rtol=1e-4, atol=1e-5)
        assert (found.right_WA == (logits.argmax(-1) == target).numpy()).all()
        assert sum(told) == 7 * 2 * L


def test_rows_count_and_fit_their_table(store: Store, run_of, tmp_path: Path) -> None:
    settings = settings_of("passkey,mqar", extend=("pi",))
    pieces = list(evaluate(run_of("rope"), store, settings))
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
    # One window of L inputs: at 1x the plain model is its own control.
    plain = rows[(rows["factor"] == 1) & (rows["extension"] == "as-trained")]
    np.testing.assert_allclose(plain["loss"], plain["control_loss"], rtol=1e-5)
    assert (plain["accuracy"] == plain["control_accuracy"]).all()


def test_all_runs_and_extensions_see_the_same_windows(store: Store, run_of) -> None:
    settings = settings_of("copy", extend=("log-n",))
    one, other = frame(run_of("rope"), store, settings), frame(run_of("none", seed=3), store, settings)
    where = ["extension", "length", "depth"]
    hashes = [rows.set_index(where)["targets_hash"].sort_index() for rows in (one, other)]
    assert hashes[0].equals(hashes[1])
    assert one["targets_hash"].nunique() == 2 * len(DEPTHS)
    fewer = frame(run_of("rope"), store, settings_of("copy", trials=5))
    assert not set(fewer["targets_hash"]) & set(one["targets_hash"])


def test_equal_plans_are_computed_once_and_the_control_with_them(store: Store, run_of, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(probing, "score", lambda *a, **k: calls.append(a[3]) or score(*a, **k))
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
def test_precision_and_what_is_fitted_reach_the_probes(store: Store, run_of, precision: str) -> None:
    settings = settings_of("needle", extend=("temperature",), precisions=("fp32", precision))
    rows = frame(run_of("rope"), store, settings)
    here = (
        rows[rows["extension"] == "as-trained"].set_index(["precision", "length", "depth"])["loss"].unstack("precision")
    )
    assert (here["fp32"] != here[precision]).any()
    np.testing.assert_allclose(here["fp32"], here[precision], rtol=0.1)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_the_control_has_the_precision_of_its_row(store: Store, run_of, precision: str) -> None:
    """What the encoding stores included: at 1x the plain model is its own control."""
    rows = frame(run_of("rope"), store, settings_of("needle", factors=(1,), precisions=(precision,)))
    assert rows["loss"].tolist() == rows["control_loss"].tolist()


def test_only_bf16_is_scored_under_autocast(store: Store, run_of) -> None:
    """A model that is not quantised, and whose encoding stores nothing, has the same scores in int8."""
    run = run_of("none")
    model = run.load_model(run.checkpoints("last")[0])
    made = Sequences.make(parse_probe("mqar"), L, 0.5, 4, store, store.split("test"))
    exact, int8, bf16 = (
        score(model, made.tokens_WN, made.answers_A, precision=precision).loss_WA
        for precision in ("fp32", "int8", "bf16")
    )
    assert (exact == int8).all()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        logits = model(torch.from_numpy(made.tokens_WN[:, :-1]))[:, made.answers_A - 1].float()
    by_hand = torch.nn.functional.cross_entropy(
        logits.mT, torch.from_numpy(made.tokens_WN[:, made.answers_A]), reduction="none"
    )
    np.testing.assert_allclose(bf16, by_hand.numpy(), rtol=2e-2)
    assert np.abs(bf16 - by_hand.numpy()).mean() < 0.5 * np.abs(exact - by_hand.numpy()).mean()


def test_an_interval_is_of_independent_trials(store: Store, run_of) -> None:
    """Windows are; the many answers of one are not."""
    rows = frame(run_of("rope"), store, settings_of("copy", factors=(1,)))
    assert (rows["n_answers"] > rows["n_trials"]).all()
    for row in rows.to_dict("records"):
        assert (row["low"], row["high"]) == wilson(row["accuracy"], 12)


def test_wilson_is_the_interval_of_those_shares_that_the_score_test_keeps() -> None:
    """By its definition: at the ends |p - accuracy| = z sqrt(p (1 - p) / n)."""
    for right, trials in ((1, 64), (20, 64), (63, 64), (5, 10)):
        accuracy = right / trials
        for end in wilson(accuracy, trials):
            assert abs(end - accuracy) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / trials), rel=1e-6)
    assert wilson(0.0, 64)[0] == 0.0
    assert wilson(1.0, 64)[1] == 1.0
    assert wilson(0.0, 64)[1] == pytest.approx(0.0566, abs=1e-4)


def test_what_cannot_be_evaluated_is_refused(store: Store, run_of) -> None:
    run = run_of("rope")
    check(run, store, settings_of("passkey"))
    for spec, factors, more, message in (
        ("passkey:length=20", (1,), {}, "takes at least 41 tokens, and a window has 32"),
        ("mqar:symbols=200", (1,), {}, "vocabulary of at least 405"),
        ("needle", (1000,), {}, "do not fill a window of 32000"),
        ("needle", (1,), {"trials": 0}, "`trials` must be at least 1"),
        ("needle", (1,), {"trials": 10**12}, "`trials=1000000000000` windows of .* tokens take at least .* GB"),
    ):
        with pytest.raises(ValueError, match=message):
            check(run, store, settings_of(spec, factors, **more))
