"""The tables of an evaluation, as declared: names, keys, groups, and rows that survive being written."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from extrapolate import results
from extrapolate.evaluation.rows import COLUMNS
from extrapolate.model.config import ModelConfig
from extrapolate.results.columns import Table
from extrapolate.results.tables import EVAL_DOCUMENTS, EVALS, INSPECTIONS, PROBES, TASKS
from extrapolate.runs.training_config import TrainingConfig


def fill(table: Table, **values: Any) -> dict[str, Any]:
    """A row of a real table, with something of the right type in every column."""
    made: dict[Any, Any] = {
        pa.string(): "text",
        pa.bool_(): True,
        pa.int64(): 2**53 + 1,  # more than a float64 holds exactly
        pa.float64(): 0.1,
        pa.timestamp("s", tz="UTC"): datetime(2024, 2, 29, 23, 59, 58, tzinfo=UTC),
    }
    return {column.name: made[column.type] for column in table.columns} | values


def test_keys_are_required_columns() -> None:
    for table in (EVALS, EVAL_DOCUMENTS, PROBES, TASKS):
        assert set(table.key) <= {column.name for column in table.columns if column.required}
        assert all(group.name and group.meaning and group.columns for group in table.groups)


def test_every_setting_of_a_model_and_its_training_is_a_column() -> None:
    """Reports tell models apart by what differs."""
    training = {COLUMNS.get(name, name) for name in TrainingConfig.model_fields} - {"seq_len"} | {"trained_length"}
    for table in (EVALS, PROBES, TASKS, INSPECTIONS):
        assert {*ModelConfig.model_fields, *training} <= {column.name for column in table.columns}


@pytest.mark.parametrize("table", [EVALS, EVAL_DOCUMENTS], ids=["evals", "eval_documents"])
class TestRows:
    def test_every_part_of_the_key_tells_rows_apart(self, tmp_path: Path, table: Table) -> None:
        results.merge(tmp_path / "t.parquet", [fill(table)], table)
        for name in table.key:
            old = fill(table)[name]
            results.merge(tmp_path / "t.parquet", [fill(table, **{name: f"{old}-2" if old == "text" else 3})], table)
        assert len(results.read(tmp_path / "t.parquet", table)) == 1 + len(table.key)
