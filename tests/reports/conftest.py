"""Tables of runs that no test has to train: those of a small run that are kept, with other values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extrapolate import results

KEPT = Path(__file__).parents[1] / "fixtures/format-1/rope"
Row = dict[str, Any]


def _write(folder: Path, change: Callable[[Row], Row | None] = dict, documents: bool = True) -> Path:
    folder.mkdir(parents=True)
    tables = {"evals.parquet": results.EVALS}
    if documents:
        tables["eval_documents.parquet"] = results.EVAL_DOCUMENTS
    for name, table in tables.items():
        columns = {column.name for column in table.columns}
        changed = [change(row) for row in results.read(KEPT / name, table)]
        rows = [{key: row[key] for key in row if key in columns} for row in changed if row is not None]
        results.write(folder / name, rows, table)
    return folder


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """Writes the tables of RoPE, as trained and with PI, at 1x and 2x under two protocols, over 15 documents.

    Called with a folder, and with what changes a row of either table, or returns None for a row that is left out.
    """
    return _write
