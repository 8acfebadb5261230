"""What is known of a cell on disk: which evaluation of which weights is complete, and what damaged files still say."""

import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from extrapolate.errors import UserError
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.results import kept
from extrapolate.runs.run import Run
from extrapolate.studies import state
from extrapolate.studies.state import CellState
from extrapolate.studies.status import status_of

FILES = ["windows", "documents/windows"]
SETTINGS = EvaluationSettings(factors=(1, 2), max_targets=512)
CHANGED: dict[str, Any] = {
    "factors": (1, 4), "extend": ("pi:factor=2",), "protocols": ("sliding",), "split": "validation",
    "max_targets": {"windows": 256}, "stride": 4, "bos": True, "checkpoint": "all", "precisions": ("bf16",),
    "probes": ("copy",), "trials": 8, "keep_losses": True,
}  # fmt: skip


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A finished run whose evaluation with SETTINGS is complete."""
    run = Path(shutil.copytree(trained / "rope", tmp_path / "runs" / "rope"))
    (weights,) = Run.open(run).checkpoints("last")
    for name in (*FILES, "probes/copy"):
        file = kept.folder_of(run, weights.sha256) / f"{name}/as-trained.parquet"
        file.parent.mkdir(parents=True)
        file.touch()
    state.write(tmp_path, "rope", CellState(evaluated=state.evaluation_key(run, SETTINGS)))
    assert state.evaluated(tmp_path, "rope", run, SETTINGS)
    return run


@pytest.mark.parametrize("name", [field.name for field in fields(EvaluationSettings)])
def test_another_evaluation_is_not_complete(run: Path, tmp_path: Path, name: str) -> None:
    assert getattr(SETTINGS, name) != CHANGED[name]
    assert not state.evaluated(tmp_path, "rope", run, replace(SETTINGS, **{name: CHANGED[name]}))


def test_nor_is_that_of_other_weights(run: Path, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "expe", run, dirs_exist_ok=True)
    assert not state.evaluated(tmp_path, "rope", run, SETTINGS)


@pytest.mark.parametrize("table", FILES)
def test_nor_one_whose_rows_came_from_another_evaluation_since_or_are_gone(
    run: Path, tmp_path: Path, table: str
) -> None:
    (file,) = run.glob(f"results/*/{table}/as-trained.parquet")
    file.write_bytes(b"others")
    assert not state.evaluated(tmp_path, "rope", run, SETTINGS)
    file.unlink()
    assert not state.evaluated(tmp_path, "rope", run, SETTINGS)


def test_a_cell_whose_run_is_gone_is_not_done(folder: Path) -> None:
    state.write(folder, "rope-s0", CellState(evaluated="0" * 16))
    assert [one.status for one in status_of(folder)] == ["left"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text('[axes]\nencoding = ["rope"]\n')
    (tmp_path / "runs/rope-s0").mkdir(parents=True)
    return tmp_path


def test_a_damaged_line_of_a_log_is_left_out(folder: Path) -> None:
    (folder / "runs/rope-s0/metrics.jsonl").write_bytes(b'{"tokens": 512, "loss": 4.5}\n{"tokens": 10')
    (found,) = status_of(folder)
    assert (found.status, found.tokens, found.loss) == ("begun", 512, 4.5)


def test_a_cell_whose_tables_are_gone_is_not_done(folder: Path) -> None:
    run = folder / "runs/rope-s0"
    (run / "model.safetensors").touch()
    state.write(folder, "rope-s0", state.CellState(evaluated="hash"))
    assert [one.status for one in status_of(folder)] == ["trained"]
    (run / "results").mkdir()
    assert [one.status for one in status_of(folder)] == ["done"]


@pytest.mark.parametrize("damage", ['{"scale": 3, "encodings": []}', "{"])
def test_a_damaged_note_of_what_was_asked_is_named(folder: Path, damage: str) -> None:
    (folder / "asked.json").write_text(damage)
    with pytest.raises(UserError, match=r"asked\.json is damaged"):
        status_of(folder)
