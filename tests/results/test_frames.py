"""Tables that follow from others, and the names that files are called by."""

import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.results import Column, Group, Table

NAMES = Table((Group("all", "everything", (Column("protocol", pa.string(), pattern=r"[\w.-]{1,80}"),)),), ("protocol",))


def test_a_frame_comes_back_without_its_index(tmp_path: Path) -> None:
    frame = pd.DataFrame({"Model": ["RoPE", "ALiBi"], "Seeds": pd.array([1, None], "Int64")}, index=[7, 3])
    results.write_frame(tmp_path / "f.parquet", frame)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "f.parquet"), frame.reset_index(drop=True))


def test_a_frame_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    frame = pd.DataFrame({"step": [1, 2], "loss": [2.5, math.nan], "name": ["a", "b"]})
    results.write_frame(path, frame)
    pd.testing.assert_frame_equal(results.read_frame(path), frame)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"f\.parquet is damaged: .*; delete it, and make it again"):
        results.read_frame(path)
    results.write_frame(path, pd.DataFrame({"step": [[1]]}))
    with pytest.raises(UserError, match=r"f\.parquet is damaged: its column step holds list"):
        results.read_frame(path)


@pytest.mark.parametrize("name", ["a/b", "../x", "a b", "", "a\n", "é|x", "x" * 300])
def test_a_name_is_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="no plain name"):
        results.write(tmp_path / "t.parquet", [{"protocol": name}], NAMES)
    pq.write_table(pa.table({"protocol": [name]}), tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"is damaged: its column protocol holds .*, which is no plain name; delete"):
        results.read(tmp_path / "t.parquet", NAMES)


@pytest.mark.parametrize("table", [results.EVALS, results.EVAL_DOCUMENTS, results.PROBES])
def test_what_files_are_called_by_is_plain(table: Table) -> None:
    plain = {column.name for column in table.columns if column.pattern}
    assert plain == {"protocol" if "protocol" in table.key else "probe", "split", "precision"}
