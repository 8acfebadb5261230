"""Parquet files, and every way in which one can be unusable."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extrapolate.data.sources import open_source
from extrapolate.errors import UserError


def test_a_row_is_a_document_named_by_its_number(tmp_path: Path, documents, write_parquet) -> None:
    # More rows than are read at a time.
    texts = [f"text {number}" for number in range(600)]
    path = write_parquet(tmp_path / "a.parquet", texts, row_group_size=100)
    found = documents(path)
    assert [document.text for document in found] == texts
    assert found[599].id == "a.parquet:599"
    assert len({document.id for document in found}) == len(found)
    assert [d.text for d in documents(write_parquet(tmp_path / "b.parquet", ["x"], "body"), "body")] == ["x"]


def test_its_size_is_that_of_the_column(tmp_path: Path) -> None:
    texts = [f"text {number} " * 50 for number in range(100)]
    pq.write_table(pa.table({"other": ["x" * 9999] * 100, "text": texts}), tmp_path / "a.parquet", row_group_size=30)
    size = sum(map(len, texts))
    assert size <= open_source(str(tmp_path / "a.parquet")).size() < 1.1 * size


@pytest.mark.parametrize(
    ("texts", "column", "field", "said"),
    [
        (["x"], "body", "text", r"a\.parquet has no 'text'; it has body, number.*`text_field`"),
        (["x"], "text", "number", "row 0: 'number' is int, not text"),
    ],
)
def test_a_column_that_holds_no_text_is_refused(
    tmp_path: Path, texts: list, column: str, field: str, said: str, documents, write_parquet
) -> None:
    with pytest.raises(ValueError, match=said):
        documents(write_parquet(tmp_path / "a.parquet", texts, column), field)


@pytest.mark.parametrize("damage", ["in the middle", "text"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: str, documents, write_parquet) -> None:
    path = write_parquet(tmp_path / "a.parquet", [f"text {number}" for number in range(1000)])
    raw = bytearray(path.read_bytes())
    raw[4:40] = b"\xff" * 36  # the first page follows the magic number
    path.write_bytes(raw)
    if damage == "text":  # what is not UTF-8
        pq.write_table(pa.table({"text": pa.array([b"caf\xe9"], pa.binary()).view(pa.string())}), path)
    with pytest.raises(UserError, match=r"a\.parquet is not a Parquet file, or is damaged"):
        documents(path)
