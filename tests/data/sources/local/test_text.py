"""Text files, and every way in which one can be unusable."""

import re
from pathlib import Path

import pytest

from extrapolate.data.documents import Document
from extrapolate.data.sources import open_source
from extrapolate.data.sources.local.base import kinds


@pytest.mark.parametrize("suffix", [".txt", ".md"])
def test_a_file_is_one_document(tmp_path: Path, suffix: str, documents) -> None:
    text = "First line,\r\nsecond: naïve café, Ελληνικά, 🙂\n\n"
    path = tmp_path / f"a{suffix}"
    path.write_bytes(text.encode())
    assert documents(path) == [Document(f"a{suffix}", text)]


def test_a_byte_order_mark_is_not_text(tmp_path: Path, documents) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert documents(tmp_path / "a.txt")[0].text == "hello"


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "void.txt").touch()
    with pytest.raises(ValueError, match=r"void\.txt is empty; remove it"):
        open_source(str(tmp_path / "void.txt"))


def test_a_binary_file_is_refused(tmp_path: Path, documents) -> None:
    (tmp_path / "image.txt").write_bytes(b"PNG\0\1\2")
    with pytest.raises(ValueError, match=r"image\.txt is binary"):
        documents(tmp_path / "image.txt")


def test_another_character_set_is_refused(tmp_path: Path, documents) -> None:
    (tmp_path / "old.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(ValueError, match=r"old\.txt is not UTF-8"):
        documents(tmp_path / "old.txt")


def test_another_kind_of_file_is_refused_with_those_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "table.xls").write_text("a,b")
    expected = re.escape(", ".join(kinds.names()))
    with pytest.raises(ValueError, match=rf"table\.xls: cannot read '\.xls' files; expected {expected}"):
        open_source(str(tmp_path / "table.xls"))
