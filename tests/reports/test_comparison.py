"""Tables that do not agree with each other, as one that was put together by hand."""

from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate import results

FIRST = Path(__file__).parents[1] / "fixtures/format-1/rope"


def put(folder: Path, evals: dict[str, object], documents: dict[str, object]) -> Path:
    """The tables of a run, with other values in all rows."""
    folder.mkdir()
    for name, table, values in (
        ("evals", results.EVALS, evals),
        ("eval_documents", results.EVAL_DOCUMENTS, documents),
    ):
        rows = [row | values for row in results.read(FIRST / f"{name}.parquet", table)]
        results.write(folder / f"{name}.parquet", rows[:1] if values.get("extension") else rows, table)
    return folder


def test_rows_of_extensions_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(xt.UserError, match="no row is of a run as it was trained: evaluate again"):
        xt.compare(put(tmp_path / "rope", {"extension": "pi"}, {"extension": "pi"}))


def test_a_model_is_called_as_its_evaluation_calls_it(without_pictures: None, tmp_path: Path) -> None:
    folder = put(tmp_path / "rope", {}, {"model": "another"})
    assert set(xt.compare(folder)["model"]) == {"RoPE"}
    xt.report(folder, tmp_path / "report")
