"""What is known of a cell on disk: which evaluation of which weights is complete."""

import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.names import PROBES_TABLE
from extrapolate.studies import state
from extrapolate.studies.state import CellState

SETTINGS = EvaluationSettings(factors=(1, 2), max_targets=512)
CHANGED: dict[str, Any] = {
    "factors": (1, 4), "extend": ("pi:factor=2",), "protocols": ("sliding",), "split": "validation",
    "max_targets": {"windows": 256}, "stride": 4, "bos": True, "checkpoint": "all", "precisions": ("bf16",),
    "probes": ("copy",), "trials": 8, "position_bucket": 4,
    "keep_losses": True,
}  # fmt: skip


@pytest.fixture
def run(evaluated: Path, tmp_path: Path) -> Path:
    """A finished run whose evaluation with SETTINGS is complete."""
    run = Path(shutil.copytree(evaluated / "rope", tmp_path / "runs" / "rope"))
    (run / PROBES_TABLE).touch()
    state.write(tmp_path, "rope", CellState(evaluated=state.evaluation_key(run, SETTINGS)))
    assert state.evaluated(tmp_path, "rope", run, SETTINGS)
    return run


@pytest.mark.parametrize("name", [field.name for field in fields(EvaluationSettings)])
def test_another_evaluation_is_not_complete(run: Path, tmp_path: Path, name: str) -> None:
    assert getattr(SETTINGS, name) != CHANGED[name]
    assert not state.evaluated(tmp_path, "rope", run, replace(SETTINGS, **{name: CHANGED[name]}))


def test_nor_is_that_of_other_weights(run: Path, evaluated: Path, tmp_path: Path) -> None:
    shutil.rmtree(run)
    shutil.copytree(evaluated / "expe", run)
    assert not state.evaluated(tmp_path, "rope", run, SETTINGS)


@pytest.mark.parametrize("table", ["evals.parquet", "eval_documents.parquet"])
def test_nor_one_whose_table_is_gone(run: Path, tmp_path: Path, table: str) -> None:
    (run / table).unlink()
    assert not state.evaluated(tmp_path, "rope", run, SETTINGS)
