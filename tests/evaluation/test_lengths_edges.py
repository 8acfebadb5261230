"""What is refused before any work, and what every row and its progress say, on text with a known optimum."""

import copy
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.store import Store
from extrapolate.data.synthetic.base import parse_process
from extrapolate.evaluation import lengths
from extrapolate.evaluation.lengths import check, evaluate, expected_inputs, models
from extrapolate.evaluation.optimum import optimal_losses
from extrapolate.evaluation.protocols.base import protocols, targets_hash
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import Targets
from extrapolate.results import EVAL_DOCUMENTS, EVALS, write
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run

L = 8
SPEC = "markov:states=4,concentration=0.3,documents=120,length=70"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("synthetic") / "markov"
    return build_store(parse_process(SPEC), StoreSettings(source=f"synthetic:{SPEC}"), folder)


@pytest.fixture
def run(store: Store, tmp_path: Path) -> Run:
    """Random weights: what is asked here does not depend on them."""
    sizes = {"width": 16, "layers": 1, "heads": 1, "head_dim": 16, "ff_width": 16}
    config, _ = resolve(TrainingRequest(pe="rope", model=sizes, training={"seq_len": L, "tokens": 4096}), store)
    made = Run.create(tmp_path / "the-run", config, (store.path / "tokenizer.json").read_bytes())
    made.save_weights(made.build_model(), 16, 4096, final=True)
    return made


def settings_of(**more: Any) -> EvaluationSettings:
    return EvaluationSettings(**{"factors": (1, 4), "max_targets": 256} | more)


def test_what_can_be_evaluated_is_not_refused(run: Run, store: Store) -> None:
    check(run, store, settings_of())
    check(run, store, settings_of(protocols=("sliding",), split="validation", precisions=("bf16",)))
    check(run, store, settings_of(extend=("pi", "temperature", "temperature:c=0.1")))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"protocols": ("fixed_target",)}, "unknown protocol 'fixed_target'; did you mean 'fixed-target'"),
        ({"protocols": ()}, f"name at least one protocol: {', '.join(protocols.names())}"),
        ({"factors": (1, 1e308)}, "factor 1e.308 of a training length of 8 makes windows of more than 16777216 tokens"),
        ({"factors": (1, 1e9)}, "makes windows of more than 16777216 tokens"),
        ({"max_targets": 10**400}, "`max_targets` must be from 1 to 9007199254740992"),
        ({"max_targets": {"windows": 2**53 + 1}}, "`max_targets` must be from 1 to"),
        ({"max_targets": {"windows": 0}}, "`max_targets` must be from 1 to"),
        ({"split": "train"}, "no held-out split 'train': choose from"),
        ({"precisions": ("fp31",)}, "unknown precision 'fp31'; did you mean 'fp32'"),
        ({"precisions": ()}, "name at least one precision: fp32, bf16, int8"),
        ({"extend": ("expe-scale",)}, "expe-scale means nothing for RoPE"),
        ({"extend": ("temperature:c=-0.9",)}, "makes the scores' factor"),
        ({"extend": ("temperature",), "factors": (1, 9), "protocols": ("sliding",)}, "no validation document"),
        ({"factors": (1, 9)}, "no held-out document holds a span of 72"),
        ({"max_targets": 31}, "holds no span of 32"),
        ({"protocols": ("windows", "fixed-target"), "factors": (0.25,)}, "an evaluation length of 2 is too short"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(run: Run, store: Store, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(run, store, settings_of(**asked))


def test_a_run_that_is_not_finished_is_refused(run: Run, store: Store) -> None:
    (run.path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="is not finished"):
        check(run, store, settings_of())


@pytest.mark.parametrize("at", [0, 1], ids=["evals", "documents"])
def test_tables_that_cannot_be_added_to_are_refused(run: Run, store: Store, at: int) -> None:
    names, tables = ("evals.parquet", "eval_documents.parquet"), (EVALS, EVAL_DOCUMENTS)
    rows = [row for piece in evaluate(run, store, settings_of(factors=(1,))) for row in piece[at]]
    write(run.path / names[at], rows, tables[at])
    check(run, store, settings_of())
    (run.path / names[at]).write_bytes(b"no table")
    with pytest.raises(ValueError, match=names[at]):
        check(run, store, settings_of())
    write(run.path / names[at], rows, tables[at])
    frame = pd.read_parquet(run.path / names[at]).drop(columns="control_loss")
    frame.to_parquet(run.path / names[at])
    with pytest.raises(ValueError, match=names[at]):
        check(run, store, settings_of())


@pytest.mark.parametrize("protocol", protocols.names())
def test_the_most_targets_are_the_protocols_own_unless_given(store: Store, protocol: str) -> None:
    split = SimpleNamespace(lengths=np.full(40_000, 4 * L + 1))
    for given in (None, 640):
        layout = EvaluationSettings(factors=(1, 4), max_targets=given).layout(protocol, split, L)
        count = sum(len(group.start_W) * group.scored for group in layout.control)
        assert count == (protocols[protocol].max_targets if given is None else 640)
        assert set(layout.rows) == {L, 4 * L}


@pytest.mark.parametrize("split_name", ["test", "validation"])
def test_rows_have_their_targets_hash_and_optimum_and_documents_add_up_to_it(
    run: Run, store: Store, split_name: str
) -> None:
    settings = settings_of(split=split_name)
    rows, documents = [], []
    for piece in evaluate(run, store, settings):
        rows += piece[0]
        documents += piece[1]
    assert len(rows) == 4
    split, found = store.split(split_name), pd.DataFrame(documents)
    for row in rows:
        layout = settings.layout(row["protocol"], split, L)
        assert row["targets_hash"] == targets_hash(layout.control, store.corpus_hash, split_name)
        assert (row["split"], row["corpus_hash"]) == (split_name, store.corpus_hash)
        optimum_N = optimal_losses(parse_process(SPEC), split, layout.rows[row["length"]])
        assert row["optimum_loss"] == pytest.approx(optimum_N.mean())
        assert row["factor"] == row["length"] / L
        mine = found[(found["protocol"] == row["protocol"]) & (found["length"] == row["length"])]
        assert (mine["optimum_loss"] * mine["n_targets"]).sum() == pytest.approx(optimum_N.sum())
        targets = Targets.of(layout.control, split, None)
        assert row["n_documents"] == len(set(targets.document_N.tolist())) == mine["document"].nunique()


def test_progress_names_what_is_measured_and_adds_up_to_what_is_expected(run: Run, store: Store) -> None:
    told: dict[str, float] = defaultdict(float)

    def progress(what: str, inputs: float) -> None:
        told[what] += inputs

    settings = settings_of(protocols=("windows",), extend=("pi", "temperature"), precisions=("fp32", "bf16"))
    list(evaluate(run, store, settings, progress=progress))
    # What pi does at 1x is nothing, so that only 4x is measured again: 256 targets, each window's inputs all new.
    plain, pi, warm = (f"the-run windows RoPE{name}" for name in ("", " + PI", " + Temperature"))
    assert set(told) == {f"{plain} 1x, 4x", f"{pi} 4x", f"{warm} 4x", f"{warm}, fitting"}
    assert told[f"{pi} 4x"] == told[f"{warm} 4x"] == 2 * 256
    assert sum(told.values()) == expected_inputs(run, store, settings)


def test_models_are_where_they_are_wanted(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was loaded, and the copy that a precision runs; "meta" is a device that every machine has."""
    monkeypatch.setattr(lengths, "in_precision", lambda model, precision: copy.deepcopy(model))
    monkeypatch.setattr(lengths.causality, "check_run", lambda *_, **__: None)  # nothing is computed on that device
    found = list(models(run, store, settings_of(precisions=("fp32", "int8")), "meta"))
    assert [precision for _, _, precision, _ in found] == ["fp32", "int8"]
    for _, loaded, _, model in found:
        assert loaded is not model
        assert loaded.head.weight.device.type == model.head.weight.device.type == "meta"
