"""What an evaluation computes: each item once, and nothing that a run keeps already."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import extrapolate as xt
from extrapolate import results
from extrapolate.data.store import Store
from extrapolate.evaluation import lengths, probes, work
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.model.model import Model
from extrapolate.results import kept
from extrapolate.runs.run import Run

FEW: dict[str, Any] = {"max_targets": 64, "device": "cpu"}


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "rope", tmp_path / "ckpt/rope"))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[set[Any]]:
    """The windows that are computed from here on, by protocol and plan."""
    found: list[set[Any]] = []
    measure = lengths.measure

    def noted(model: Any, split: Any, wanted: Any, *rest: Any, **options: Any) -> Any:
        found.append({key if key == "control" else key[0] for key in wanted})
        return measure(model, split, wanted, *rest, **options)

    monkeypatch.setattr(lengths, "measure", noted)
    return found


def timeless(table: pd.DataFrame) -> pd.DataFrame:
    """The rows without what differs from one evaluation to the next."""
    rows = table.drop(columns=["tokens_per_s", "peak_mib", "evaluated_at"])
    return rows.sort_values(["extension", "protocol", "length"]).reset_index(drop=True)


def test_only_lengths_and_extensions_that_are_not_there_are_computed(run: Path, computed: list[set[Any]]) -> None:
    """The result is that of one evaluation."""
    alone = Path(shutil.copytree(run, run.with_name("alone")))
    whole = xt.evaluate(alone, factors=(1, 2, 4), extend="pi", protocols="windows", **FEW)
    computed.clear()
    first = xt.evaluate(run, factors=(1, 4), protocols="windows", **FEW)
    assert computed == [{16, 64, "control"}]
    computed.clear()
    more = xt.evaluate(run, factors=(1, 2, 4), extend="pi", protocols="windows", **FEW)
    assert computed == [{32, "control"}, {16}, {32}, {64}]
    same = timeless(whole).drop(columns="run")
    pd.testing.assert_frame_equal(timeless(more)[list(same)], same, check_dtype=False, rtol=1e-6)
    kept_rows = timeless(xt.rows(run))[list(same)]
    pd.testing.assert_frame_equal(kept_rows, same, check_dtype=False, rtol=1e-6)
    documents = [xt.rows(one, "documents").drop(columns="run") for one in (run, alone)]
    order = ["extension", "length", "document", "block", "position"]
    documents = [one.sort_values(order).reset_index(drop=True) for one in documents]
    pd.testing.assert_frame_equal(*documents, rtol=1e-6)
    assert set(first["factor"]) == {1, 4}
    computed.clear()
    again = xt.evaluate(run, factors=(2, 4), protocols="windows", **FEW)
    assert computed == []
    assert sorted(again["factor"]) == [2, 4]


def test_nothing_is_loaded_where_all_is_there(
    run: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any], contents: Callable[[Path], dict[str, bytes]]
) -> None:
    flags = ["--factors", "1,2", "--max-targets", "64", "--probes", "copy", "--probe-trials", "2"]
    shown = cli("eval-lengths", run, *flags).succeeded()
    before = contents(run)

    def refused(*arguments: object) -> None:
        raise AssertionError("no weights are needed")

    monkeypatch.setattr(Run, "load_model", refused)
    again = cli("eval-lengths", run, *flags).succeeded()
    assert again.out == shown.out
    assert f"{run}: 14 rows are there already, and are not computed again" in again.err
    assert contents(run) == before
    monkeypatch.undo()
    estimate = xt.estimate_evaluation(run, factors=(1, 2, 4), max_targets=64, protocols="windows")
    assert estimate.rows["tokens"].sum() < 3 * 64 * 4


@pytest.mark.parametrize(
    "differs",
    [
        {"version": "0.0.1"}, {"commit": "of before"}, {"config_hash": "of another length"}, {"reason": "memory did"},
        {"targets_hash": "others"}, {"key_within": 7},
    ],
    ids=lambda differs: next(iter(differs)),
)  # fmt: skip
def test_rows_that_would_be_computed_otherwise_now_are_computed(
    run: Path, computed: list[set[Any]], monkeypatch: pytest.MonkeyPatch, differs: dict[str, Any],
    edit_rows: Callable[..., None],
) -> None:  # fmt: skip
    monkeypatch.setattr(work, "MEMORY", "memory did")
    xt.evaluate(run, factors=(1, 2), protocols="windows", **FEW)
    losses = xt.rows(run)["loss"].tolist()
    edit_rows(run, results.EVALS, lambda row: row | differs)
    computed.clear()
    xt.evaluate(run, factors=(1, 2), protocols="windows", **FEW)
    assert computed == [{16, 32, "control"}]
    rows = xt.rows(run).query("targets_hash != 'others'")
    assert rows["loss"].tolist() == losses


def test_more_trials_of_a_probe_are_asked_again(run: Path) -> None:
    few: dict[str, Any] = {"factors": (1,), "device": "cpu"}
    xt.evaluate_probes(run, "copy", trials=2, **few)
    (path,) = kept.files_of(run, results.PROBES)
    before = path.read_bytes()
    xt.evaluate_probes(run, "copy", trials=2, **few)
    assert path.read_bytes() == before
    assert set(xt.evaluate_probes(run, "copy", trials=3, **few)["n_trials"]) == {3}


@pytest.mark.parametrize("pe", ["rope", "expe"])
def test_an_evaluation_of_a_built_in_encoding_makes_no_pass_that_gives_no_number(
    trained: Path, store: Path, monkeypatch: pytest.MonkeyPatch, pe: str
) -> None:
    """The model reads the tokens of the windows, and no others."""
    settings = EvaluationSettings((1, 2, 4), ("log-n",), max_targets=128, probes=("copy",), trials=2)
    whole, read = work.work_of(Run.open(trained / pe), Store.open(store), settings), [0]
    hidden = Model.hidden

    def counted(self: Model, tokens_BT: torch.Tensor, *rest: Any, **options: Any) -> Any:
        read[0] += tokens_BT.numel()
        return hidden(self, tokens_BT, *rest, **options)

    monkeypatch.setattr(Model, "hidden", counted)
    list(lengths.evaluate(whole))
    assert read[0] == whole.inputs(whole.on_text).total()
    read[0] = 0
    list(probes.evaluate(whole))
    assert read[0] == whole.inputs(whole.on_probes).total()
