"""Tables on disk: nothing missing, nothing doubled, nothing lost, whatever program wrote them."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extrapolate import __version__, results
from extrapolate.errors import UserError
from extrapolate.files import FORMAT
from extrapolate.results import Column, Group, Table

FIXTURE = Path(__file__).parents[1] / "fixtures/rope"
COLUMNS = (
    Column("run", pa.string()),
    Column("factor", pa.float64(), "ratio"),
    Column("loss", pa.float64(), "nats", required=False),
    Column("control", pa.float64(), "nats"),
    Column("count", pa.int64()),
    Column("speed", pa.int64(), required=False),
)
SMALL = Table((Group("all", "everything", COLUMNS),), key=("run", "factor"))


def row(run: str = "a", factor: float = 1.0, **values: Any) -> dict[str, Any]:
    return {"run": run, "factor": factor, "loss": 2.5, "control": 2.0, "count": 7, "speed": 3} | values


def read(path: Path, table: Table = SMALL) -> list[dict[str, Any]]:
    return results.read(path, table)


def add(path: Path, *rows: dict[str, Any]) -> None:
    results.merge(path, list(rows), SMALL)


def test_a_small_table_is_read_without_a_thread() -> None:
    """A process that ends while Arrow starts one is aborted, after a message about a damaged table for example."""
    read = "import os, sys; from pathlib import Path; from extrapolate import results; tasks = '/proc/self/task'"
    read += "; before = os.listdir(tasks); results.read_columns(Path(sys.argv[1]), results.EVALS)"
    read += "; print(len(os.listdir(tasks)) - len(before))"
    command = [sys.executable, "-c", read, FIXTURE / "evals.parquet"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"


class TestWriting:
    def test_a_file_says_its_format_its_version_and_its_units_and_other_programs_read_it(self, tmp_path: Path) -> None:
        rows = [row(), row("b", 2.0, loss=math.pi)]
        results.write(tmp_path / "t.parquet", rows, SMALL)
        results.write_frame(tmp_path / "f.parquet", pd.DataFrame(rows))
        for name in ("t.parquet", "f.parquet"):
            metadata = pq.read_schema(tmp_path / name).metadata
            assert metadata[b"extrapolate_format"] == str(FORMAT).encode()
            assert metadata[b"extrapolate_version"] == __version__.encode()
            assert pd.read_parquet(tmp_path / name).to_dict("records") == rows
            assert len(pq.read_table(tmp_path / name, page_checksum_verification=True)) == 2
        schema = pq.read_schema(tmp_path / "t.parquet")
        assert schema.field("loss").metadata[b"unit"] == b"nats"
        assert (schema.field("loss").nullable, schema.field("count").nullable) == (True, False)

    @pytest.mark.parametrize("name", [column.name for column in SMALL.columns if column.required])
    def test_a_required_value_that_is_missing_is_refused(self, tmp_path: Path, name: str) -> None:
        left_out = {column: value for column, value in row().items() if column != name}
        for short in (left_out, left_out | {name: None}):
            with pytest.raises(ValueError, match=rf"t\.parquet: a row has no {name}"):
                results.write(tmp_path / "t.parquet", [row("b"), short], SMALL)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("name", "value"), [("count", 1.5), ("run", 3), ("sped", 3)])
    def test_a_value_of_another_type_or_without_a_column_is_refused(
        self, tmp_path: Path, name: str, value: object
    ) -> None:
        """A misspelled optional column would else be a value lost in silence."""
        results.write(tmp_path / "t.parquet", [row()], SMALL)
        with pytest.raises(ValueError, match=r"t\.parquet: "):
            results.write(tmp_path / "t.parquet", [row(**{name: value})], SMALL)
        assert read(tmp_path / "t.parquet") == [row()]


def test_a_frame_is_read_as_it_was_written_without_its_index(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    frame = pd.DataFrame({"step": [1, 2], "loss": [2.5, math.nan], "name": ["a", "b"]}, index=[7, 3])
    results.write_frame(path, frame)
    pd.testing.assert_frame_equal(results.read_frame(path), frame.reset_index(drop=True))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"f\.parquet is damaged: .*; delete it, and make it again"):
        results.read_frame(path)


class TestReading:
    def test_an_optional_column_that_is_missing_reads_as_none(self, tmp_path: Path) -> None:
        before = {name: value for name, value in row().items() if name not in ("loss", "speed")}
        pq.write_table(pa.Table.from_pylist([before]), tmp_path / "t.parquet")
        assert read(tmp_path / "t.parquet") == [row(loss=None, speed=None)]
        results.merge(tmp_path / "t.parquet", [row("b")], SMALL)
        assert read(tmp_path / "t.parquet") == [row(loss=None, speed=None), row("b")]

    def test_a_file_of_another_format_is_refused(self, tmp_path: Path) -> None:
        number = FORMAT + 1
        path = tmp_path / "t.parquet"
        other = pa.Table.from_pylist([row()]).replace_schema_metadata({"extrapolate_format": str(number)})
        pq.write_table(other, path)
        said = rf"t\.parquet was written by another version of extrapolate: its format is {number}, and"
        for call in (lambda: read(path), lambda: results.check(path, SMALL), lambda: add(path, row("b"))):
            with pytest.raises(UserError, match=said):
                call()
        assert pq.read_table(path).equals(other)

    @pytest.mark.parametrize("kept", [0, -1])
    def test_a_damaged_file_is_refused_and_stays(self, tmp_path: Path, kept: int) -> None:
        path = tmp_path / "t.parquet"
        results.write(path, [row()], SMALL)
        path.write_bytes(path.read_bytes()[:kept])
        before = path.read_bytes()
        data = pa.Table.from_pylist([row("b")], schema=SMALL.schema())
        for call in (lambda: read(path), lambda: add(path, row("b")), lambda: results.merge_columns(path, data, SMALL)):
            with pytest.raises(UserError, match=r"t\.parquet is damaged: .*evaluate again"):
                call()
        assert path.read_bytes() == before


class TestDamage:
    def test_a_file_that_another_program_wrote_again_is_read_and_grows(self, tmp_path: Path) -> None:
        def rewrite(path: Path) -> None:
            pd.read_parquet(path).to_parquet(path)

        path = tmp_path / "t.parquet"
        results.write(path, [row(), row("b", loss=None)], SMALL)
        rewrite(path)
        assert len(results.read_columns(path, SMALL)) == 2
        add(path, row("c"))
        assert [(one["run"], one["count"]) for one in read(path)] == [("a", 7), ("b", 7), ("c", 7)]
        real = results.read(FIXTURE / "evals.parquet", results.EVALS)
        results.write(path, real, results.EVALS)
        rewrite(path)
        assert read(path, results.EVALS) == real

    def test_a_flipped_bit_in_a_value_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        results.write(path, [row(count=0x1122334455667788)], SMALL)
        content = path.read_bytes()
        place = content.index((0x1122334455667788).to_bytes(8, "little"))
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        for call in (lambda: read(path), lambda: results.check(path, SMALL), lambda: add(path, row("b"))):
            with pytest.raises(UserError, match=r"t\.parquet is damaged: .*CRC.*; delete it and evaluate again"):
                call()


def changed(**columns: Any) -> pa.Table:
    """A row of a table, with other values in some columns."""
    return pa.table({name: pa.array([value]) for name, value in row().items()} | columns)


class TestForeign:
    """Parquet that is whole, and no table of this program."""

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (changed(loss=pa.array(["low"])), "Failed to parse string"),
            (changed(count=pa.array([None], pa.int64())), "field 'count' with null values"),
        ],
    )
    def test_what_a_column_cannot_hold_is_refused(self, tmp_path: Path, data: pa.Table, said: str) -> None:
        path = tmp_path / "t.parquet"
        pq.write_table(data, path)
        calls = (results.read, results.read_columns, results.check, lambda path, _: add(path, row("b")))
        for call in calls:
            with pytest.raises(UserError, match=rf"t\.parquet is damaged: .*{said}.*; delete it and evaluate again"):
                call(path, SMALL)


class TestMergingColumns:
    @staticmethod
    def made(run: str, loss: list[float], protocol: str = "windows", factor: float = 2.0) -> pa.Table:
        row = {
            "run": run, "model": "RoPE", "extension": "as-trained", "protocol": protocol, "factor": factor,
            "length": 32, "split": "test", "step": 5, "precision": "fp32", "targets_hash": "t", "document": "a",
        }  # fmt: skip
        rows = [row | {"place": at + 1, "position": at, "loss": one} for at, one in enumerate(loss)]
        return pa.Table.from_pylist(rows, schema=results.EVAL_TARGETS.schema())

    def test_rows_with_the_key_of_a_row_are_replaced_by_columns(self, tmp_path: Path) -> None:
        path, table = tmp_path / "t.parquet", results.EVAL_TARGETS
        first, other = self.made("a", [1.0, 2.0, 3.0]), self.made("a", [4.0], "sliding")
        for data in (first, other):
            results.merge_columns(path, data, table)
        assert results.read(path, table) == [*first.to_pylist(), *other.to_pylist()]
        again = self.made("a", [5.0, 6.0])
        results.merge_columns(path, again, table)
        assert results.read(path, table) == [*other.to_pylist(), *again.to_pylist()]
        longer = self.made("a", [7.0], factor=4.0)
        results.merge_columns(path, longer, table)
        assert [row["loss"] for row in results.read(path, table)] == [4.0, 5.0, 6.0, 7.0]
        assert pa.types.is_dictionary(pq.read_table(path)["document"].type)


class TestMerging:
    def test_columns_that_are_not_known_here_are_never_lost(self, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        more = (*COLUMNS, Column("brier", pa.float64()), Column("ece", pa.float64()))
        results.write(path, [row() | {"brier": 0.5, "ece": 0.1}], Table((Group("all", "everything", more),), ("run",)))
        before = path.read_bytes()
        said = rf"t\.parquet has the columns brier, ece, which extrapolate {__version__} does not know and would lose"
        for call in (lambda: results.check(path, SMALL), lambda: add(path, row("b"))):
            with pytest.raises(UserError, match=said):
                call()
        assert path.read_bytes() == before

    def test_rows_of_the_same_key_are_replaced_and_others_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        results.merge(path, [row("a", 1, loss=1.0), row("a", 2, loss=2.0), row("b", 1, loss=None, speed=None)], SMALL)
        results.merge(path, [row("a", 2, loss=20.0), row("c", 1, loss=3.0)], SMALL)
        found = [(r["run"], r["factor"], r["loss"], r["speed"]) for r in read(path)]
        assert found == [("a", 1, 1.0, 3), ("b", 1, None, None), ("a", 2, 20.0, 3), ("c", 1, 3.0, 3)]
        before = read(path)
        results.merge(path, before, SMALL)
        assert read(path) == before

    def test_missing_and_infinite_values_outlive_the_next_evaluation(self, tmp_path: Path) -> None:
        """NaN is a measured loss, of a run that diverged; None is one that does not exist. Counts stay exact."""
        path, large = tmp_path / "t.parquet", 2**53 + 1  # more than a float64 holds exactly
        lost = row("diverged", loss=math.nan, control=math.nan, speed=large)
        results.merge(path, [lost, row("ends", loss=None, speed=None)], SMALL)
        results.merge(path, [row("next")], SMALL)
        stored = {r["run"]: r for r in pq.read_table(path).to_pylist()}
        assert math.isnan(stored["diverged"]["loss"])
        assert math.isnan(stored["diverged"]["control"])
        assert stored["ends"]["loss"] is None
        assert [r["speed"] for r in stored.values()] == [large, None, 3]
