"""docs/results.md: the files have its columns, and its examples run."""

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.catalogue.tables import TABLES, kind, table
from extrapolate.reports.published import Repeating, write_cells
from extrapolate.reports.questions import write_questions
from extrapolate.results import kept

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
# Their columns depend on the factors.
BY_FACTOR = ("loss_by_ev", "optimum_by_ev", "checkpoints", "extensions", "cost")


@pytest.mark.parametrize("one", TABLES, ids=lambda one: one.name)
def test_every_column_has_a_meaning_and_says_when_it_is_empty(one) -> None:
    for column in one.columns:
        assert column.meaning.endswith("."), column.name
        assert bool(column.empty) != column.required, column.name
    assert len({column.name for column in one.columns}) == len(one.columns)


def test_the_meaning_is_in_the_file(tmp_path: Path) -> None:
    results.write(tmp_path / "evals.parquet", [], results.EVALS)
    metadata = pq.read_schema(tmp_path / "evals.parquet").field("loss").metadata
    assert metadata[b"meaning"] == b"The mean negative log-likelihood of the targets."
    assert metadata[b"unit"] == b"nats per target"


KEPT = {
    "evals": results.EVALS, "eval_documents": results.EVAL_DOCUMENTS, "eval_targets": results.EVAL_TARGETS,
    "probes": results.PROBES, "eval_tasks": results.TASKS, "inspections": results.INSPECTIONS,
}  # fmt: skip
# The runs are as those of a study in the folder above them.
OF_A_STUDY = pd.DataFrame(
    {
        "Model": ["rope"] * 2,
        "Learning rate": [1e-3, 3e-3],
        "Validation loss": [5.0, None],
        "± (95 %)": [None, None],
        "Seeds": [1, 1],
        "Taken": ["yes, the lowest tried", ""],
        "Weights": ["", ""],  # of the run, filled in below
    }
)


ASKED = {"question": 0, "a": "rope", "b": "none", "factor": 2.0, "extension": "as-trained"}


def scored(row: dict[str, Any]) -> dict[str, Any]:
    """A row of evals as one of a benchmark, which takes lm-eval to make."""
    own = {"task": "arc_easy", "metric": "acc", "filter": "none", "shots": 0, "value": 0.25, "stderr": 0.1}
    own |= {"n_questions": 8, "n_cut": 0, "task_version": "1.0", "lm_eval_version": "0.4.13"}
    known = {column.name for column in results.TASKS.columns}
    return {name: value for name, value in (row | own).items() if name in known}


@pytest.fixture(scope="module")
def folder(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluated runs in `ckpt`, one of them on a probe too and inspected, and their report in `report`."""
    from extrapolate.cli import main

    made = tmp_path_factory.mktemp("results")
    shutil.copytree(evaluated, made / "ckpt")
    probing = ["--probes", "needle", "--probe-trials", "2", "--protocol", "off", "--factors", "1,2"]
    (row, *_) = xt.rows(made / "ckpt/rope").query("step == step.max()").to_dict("records")
    kept.add(made / "ckpt/rope", results.TASKS, [scored(row)])
    few = ["--protocol", "windows", "--max-targets", "512", "--factors", "1,2,4"]
    for command in (
        ["eval-lengths", made / "ckpt/rope", *probing],
        ["eval-lengths", made / "ckpt/rope", *few, "--keep-losses"],
        ["inspect", made / "ckpt/rope", "--measure", "truncation,frequencies", "--factors", "1", "--windows", "2"],
        ["report", made / "ckpt", "--out", made / "report"],
    ):
        results.write_frame(made / "learning_rates.parquet", OF_A_STUDY.assign(Weights=[row["weights_sha256"], ""]))
        write_questions(made, [ASKED | {"side": side, "run": run} for side, run in (("a", "rope"), ("b", "none"))])
        write_cells(made, ["expe-table-1"], [Repeating("rope", "rope", "tiny", 1, "text")])
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, command)))
        assert not ended.value.code
    return made


def kinds_in(path: Path) -> dict[str, str]:
    """The columns of a file, and whether each holds numbers."""
    frame = pd.read_parquet(path)
    types = pd.api.types
    numbers = {name: types.is_numeric_dtype(one) and not types.is_bool_dtype(one) for name, one in frame.items()}
    return {name: "number" if numbers[name] else "other" for name in frame.columns}


@pytest.mark.parametrize(
    "one", [one for one in TABLES if one.name not in (*BY_FACTOR, "doublings")], ids=lambda one: one.name
)
def test_a_file_has_the_columns_of_its_table(folder: Path, one) -> None:
    paths = [folder / place / f"{one.name}.parquet" for place in (".", "ckpt/rope", "report")]
    paths = [path for path in paths if path.exists()]
    if one.name in KEPT:
        own = list(kept.files_of(folder / "ckpt/rope", KEPT[one.name]))
        assert own
        paths += own
    assert paths
    wanted = {c.name: "number" if "number" in kind(c.type) else "other" for c in one.columns}
    for path in paths:
        found = kinds_in(path)
        assert set(found) == set(wanted), path
        frame = pd.read_parquet(path)
        for column in one.columns:
            assert found[column.name] == wanted[column.name] or frame[column.name].isna().all(), column.name
            assert not column.required or frame[column.name].notna().all(), column.name


def test_every_file_says_its_format_and_the_version_that_wrote_it(folder: Path) -> None:
    paths = [*folder.glob("ckpt/rope/**/*.parquet"), *folder.glob("report/*.parquet")]
    assert len(paths) >= 9
    for path in paths:
        assert {b"extrapolate_format", b"extrapolate_version"} <= pq.read_schema(path).metadata.keys(), path


@pytest.mark.parametrize("name", ["loss_by_ev", "extensions", "cost"])
def test_a_table_by_factor_has_a_column_for_every_factor(folder: Path, name: str) -> None:
    found = [re.sub(r"ev=[0-9.]+", "ev=K", name) for name in pd.read_parquet(folder / f"report/{name}.parquet").columns]
    assert list(dict.fromkeys(found)) == [column.name for column in table(name).columns]


def test_optimum_by_ev_has_its_columns() -> None:
    from extrapolate.reports.sections.optimum import optimum_by_ev

    rows = pd.DataFrame(
        {"model": "RoPE", "seed": 0, "factor": [1.0, 2.0], "loss": [2.0, 1.9], "optimum_loss": [1.9, 1.7]}
    )
    found = [re.sub(r"ev=[0-9.]+", "ev=K", name) for name in optimum_by_ev(rows, ["RoPE"]).columns]
    assert list(dict.fromkeys(found)) == [column.name for column in table("optimum_by_ev").columns]


def test_the_examples_run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    made: list[dict[str, object]] = []
    for example in examples:
        made.append({})
        exec(example, made[-1])
    assert (folder / "curve.png").stat().st_size
    joined = made[1]["joined"]
    assert isinstance(joined, pd.DataFrame)
    weighted = joined["total"].groupby([joined["protocol"], joined["factor"], joined["extension"]]).sum()
    counts = joined["n_targets"].groupby([joined["protocol"], joined["factor"], joined["extension"]]).sum()
    rows = joined.groupby(["protocol", "factor", "extension"])["loss"].first()
    pd.testing.assert_series_equal(weighted / counts, rows, check_names=False)
    assert "ExPE" in capsys.readouterr().out


def test_the_command_prints_a_table(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    out = cli("columns").succeeded().out
    assert all(column.meaning in out for one in TABLES for group in one.own() for column in group.columns)
    assert all(
        f"{one.name}, {group.name}: {group.meaning}" in out for one in TABLES for group in one.own() if group.name
    )
    out = cli("columns", "probes.parquet").succeeded().out
    assert all(f" {column.name} " in out for column in table("probes").columns)
    assert "did you mean 'metrics'" in cli("columns", "metric").error()
