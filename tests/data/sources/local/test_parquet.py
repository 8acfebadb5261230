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
    (tmp_path / "a.parquet").write_bytes(b"none")
    assert open_source(str(tmp_path / "a.parquet")).size() == 0


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


@pytest.mark.parametrize("damage", ["all", "in the middle", "at the end", "text"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: str, documents, write_parquet) -> None:
    path = write_parquet(tmp_path / "a.parquet", [f"text {number}" for number in range(1000)])
    raw = bytearray(path.read_bytes())
    # The first page follows the magic number; the description of the file ends it.
    place = slice(4, 40) if damage == "in the middle" else slice(len(raw) - 60, len(raw) - 20)
    raw[place] = b"\xff" * (place.stop - place.start)
    path.write_bytes(b"not a table at all" if damage == "all" else raw)
    if damage == "text":  # what is not UTF-8
        pq.write_table(pa.table({"text": pa.array([b"caf\xe9"], pa.binary()).view(pa.string())}), path)
    with pytest.raises(UserError, match=r"a\.parquet is not a Parquet file, or is damaged"):
        documents(path)


def test_a_column_of_splits_is_read(tmp_path: Path, documents) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"split": ["train", "validation", "test", None], "text": list("abcd")}), path)
    found = documents(path)
    assert [document.text for document in found] == list("abcd")
    assert [document.split for document in found] == ["train", "validation", "test", "other"]
