"""Tables with declared columns: nothing missing, nothing doubled, nothing lost."""

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extrapolate import results
from extrapolate.results.tables import EVAL_DOCUMENTS, EVALS, Column, Table

SMALL = Table(
    columns=(
        Column("run", pa.string()),
        Column("factor", pa.float64(), "ratio"),
        Column("loss", pa.float64(), "nats", required=False),
        Column("control", pa.float64(), "nats"),
        Column("count", pa.int64()),
        Column("speed", pa.int64(), required=False),
    ),
    key=("run", "factor"),
)


def row(run: str = "a", factor: float = 1.0, **values: Any) -> dict[str, Any]:
    return {"run": run, "factor": factor, "loss": 2.5, "control": 2.0, "count": 7, "speed": 3} | values


def read(path: Path, table: Table = SMALL) -> list[dict[str, Any]]:
    return results.read(path, table)


def fill(table: Table, **values: Any) -> dict[str, Any]:
    """A row of a real table, with something of the right type in every column."""
    made: dict[Any, Any] = {
        pa.string(): "text",
        pa.int64(): 2**53 + 1,  # more than a float64 holds exactly
        pa.float64(): 0.1,
        pa.timestamp("s", tz="UTC"): datetime(2024, 2, 29, 23, 59, 58, tzinfo=UTC),
    }
    return {column.name: made[column.type] for column in table.columns} | values


class TestWriting:
    def test_rows_come_back(self, tmp_path: Path) -> None:
        rows = [row(), row("b", 2.0, loss=math.pi)]
        results.write(tmp_path / "t.parquet", rows, SMALL)
        assert read(tmp_path / "t.parquet") == rows

    def test_none_comes_back(self, tmp_path: Path) -> None:
        rows = [row(loss=None, speed=None), row("b")]
        results.write(tmp_path / "t.parquet", rows, SMALL)
        assert read(tmp_path / "t.parquet") == rows

    def test_an_optional_column_may_be_left_out(self, tmp_path: Path) -> None:
        short = row()
        del short["loss"]
        results.write(tmp_path / "t.parquet", [short], SMALL)
        assert read(tmp_path / "t.parquet") == [row(loss=None)]

    def test_an_empty_table_has_its_columns(self, tmp_path: Path) -> None:
        results.write(tmp_path / "t.parquet", [], SMALL)
        assert pq.read_schema(tmp_path / "t.parquet").names == [column.name for column in SMALL.columns]
        assert read(tmp_path / "t.parquet") == []

    @pytest.mark.parametrize("name", [column.name for column in SMALL.columns if column.required])
    @pytest.mark.parametrize("how", ["left out", "None"])
    def test_a_required_value_that_is_missing_is_refused(self, tmp_path: Path, name: str, how: str) -> None:
        short = row()
        if how == "None":
            short[name] = None
        else:
            del short[name]
        with pytest.raises(ValueError, match=rf"t\.parquet: a row has no {name}"):
            results.write(tmp_path / "t.parquet", [row("b"), short], SMALL)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("name", "value"), [("count", "many"), ("count", 1.5), ("loss", "low"), ("run", 3)])
    def test_a_value_of_another_type_is_refused(self, tmp_path: Path, name: str, value: object) -> None:
        results.write(tmp_path / "t.parquet", [row()], SMALL)
        with pytest.raises(ValueError, match=r"t\.parquet: "):
            results.write(tmp_path / "t.parquet", [row(**{name: value})], SMALL)
        assert read(tmp_path / "t.parquet") == [row()]

    def test_a_value_without_a_column_is_refused(self, tmp_path: Path) -> None:
        # Otherwise a misspelled optional column is a value lost in silence.
        with pytest.raises(ValueError, match="sped"):
            results.write(tmp_path / "t.parquet", [row(sped=3)], SMALL)

    def test_units_are_in_the_file(self, tmp_path: Path) -> None:
        results.write(tmp_path / "t.parquet", [row()], SMALL)
        schema = pq.read_schema(tmp_path / "t.parquet")
        assert schema.field("loss").metadata[b"unit"] == b"nats"
        assert (schema.field("loss").nullable, schema.field("count").nullable) == (True, False)


class TestReading:
    def test_a_missing_column_is_refused_by_name(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"run": ["a"], "factor": [1.0], "count": [1]}), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=r"t\.parquet has no column loss, control, speed; delete it"):
            results.read(tmp_path / "t.parquet", SMALL)

    def test_other_columns_are_left_out(self, tmp_path: Path) -> None:
        pq.write_table(pa.Table.from_pylist([row() | {"more": 1}]), tmp_path / "t.parquet")
        assert read(tmp_path / "t.parquet") == [row()]

    @pytest.mark.parametrize("kept", [0, 4, 200, -1])
    def test_a_damaged_file_is_refused(self, tmp_path: Path, kept: int) -> None:
        results.write(tmp_path / "t.parquet", [row()], SMALL)
        raw = (tmp_path / "t.parquet").read_bytes()
        (tmp_path / "t.parquet").write_bytes(raw[:kept])
        with pytest.raises(ValueError, match=r"t\.parquet is damaged: .*evaluate again"):
            results.read(tmp_path / "t.parquet", SMALL)

    def test_a_file_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"t\.parquet"):
            results.read(tmp_path / "t.parquet", SMALL)


class TestMerging:
    def test_the_first_rows_make_the_table(self, tmp_path: Path) -> None:
        results.merge(tmp_path / "t.parquet", [row()], SMALL)
        assert read(tmp_path / "t.parquet") == [row()]

    def test_rows_of_the_same_key_are_replaced_and_others_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        results.merge(path, [row("a", 1, loss=1.0), row("a", 2, loss=2.0), row("b", 1, loss=None, speed=None)], SMALL)
        results.merge(path, [row("a", 2, loss=20.0), row("c", 1, loss=3.0)], SMALL)
        found = {(r["run"], r["factor"]): (r["loss"], r["speed"]) for r in read(path)}
        assert found == {("a", 1): (1.0, 3), ("a", 2): (20.0, 3), ("b", 1): (None, None), ("c", 1): (3.0, 3)}
        assert len(read(path)) == 4

    def test_merging_again_changes_nothing(self, tmp_path: Path) -> None:
        rows = [row(), row("b", speed=None)]
        for _ in range(3):
            results.merge(tmp_path / "t.parquet", rows, SMALL)
            assert read(tmp_path / "t.parquet") == rows

    def test_a_row_that_does_not_fit_leaves_the_table_as_it_was(self, tmp_path: Path) -> None:
        results.merge(tmp_path / "t.parquet", [row()], SMALL)
        for bad in (row(count=None), {"run": "b", "factor": 1.0}):
            with pytest.raises(ValueError, match="a row has no"):
                results.merge(tmp_path / "t.parquet", [bad], SMALL)
        assert read(tmp_path / "t.parquet") == [row()]

    def test_a_row_without_its_key_is_refused(self, tmp_path: Path) -> None:
        short = row()
        del short["factor"]
        with pytest.raises(ValueError, match="factor"):
            results.merge(tmp_path / "t.parquet", [short], SMALL)

    def test_a_damaged_table_is_not_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "t.parquet").write_bytes(b"damaged")
        with pytest.raises(ValueError, match="is damaged"):
            results.merge(tmp_path / "t.parquet", [row()], SMALL)
        assert (tmp_path / "t.parquet").read_bytes() == b"damaged"

    def test_a_loss_that_is_no_number_stays_one(self, tmp_path: Path) -> None:
        # A diverged run: NaN is a measured loss, None one that does not exist. Both outlive the next evaluation.
        path = tmp_path / "t.parquet"
        results.merge(path, [row("diverged", loss=math.nan, control=math.nan), row("ends", loss=None)], SMALL)
        results.merge(path, [row("next")], SMALL)
        stored = {r["run"]: r for r in pq.read_table(path).to_pylist()}
        assert math.isnan(stored["diverged"]["loss"])
        assert math.isnan(stored["diverged"]["control"])
        assert stored["ends"]["loss"] is None

    def test_large_counts_beside_missing_ones_stay_exact(self, tmp_path: Path) -> None:
        path, large = tmp_path / "t.parquet", 2**53 + 1  # more than a float64 holds exactly
        results.merge(path, [row("a", speed=large), row("b", speed=None)], SMALL)
        results.merge(path, [row("c")], SMALL)
        assert [r["speed"] for r in pq.read_table(path).to_pylist()] == [large, None, 3]


@pytest.mark.parametrize("table", [EVALS, EVAL_DOCUMENTS], ids=["evals", "eval_documents"])
class TestDeclaredTables:
    def test_names_are_unique_and_keys_are_required_columns(self, table: Table) -> None:
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names)
        assert set(table.key) <= {column.name for column in table.columns if column.required}

    def test_a_full_row_survives_two_merges(self, tmp_path: Path, table: Table) -> None:
        rows = [fill(table, run="a"), fill(table, run="b", loss=None)]
        results.merge(tmp_path / "t.parquet", rows, table)
        results.merge(tmp_path / "t.parquet", [fill(table, run="b", loss=0.5)], table)
        assert pq.read_table(tmp_path / "t.parquet").to_pylist() == [rows[0], fill(table, run="b", loss=0.5)]

    def test_every_part_of_the_key_tells_rows_apart(self, tmp_path: Path, table: Table) -> None:
        results.merge(tmp_path / "t.parquet", [fill(table)], table)
        for name in table.key:
            old = fill(table)[name]
            results.merge(tmp_path / "t.parquet", [fill(table, **{name: f"{old}!" if old == "text" else 3})], table)
        assert len(read(tmp_path / "t.parquet", table)) == 1 + len(table.key)
