"""Text files, and every way in which one can be unusable."""

from pathlib import Path

import pytest

from extrapolate.data.documents import Document


@pytest.mark.parametrize("suffix", [".txt", ".md"])
def test_a_file_is_one_document(tmp_path: Path, suffix: str, documents) -> None:
    text = "First line,\r\nsecond: naïve café, Ελληνικά, 🙂\n\n"
    path = tmp_path / f"a{suffix}"
    path.write_bytes(text.encode())
    assert documents(path) == [Document(f"a{suffix}", text)]


def test_a_byte_order_mark_is_not_text(tmp_path: Path, documents) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert documents(tmp_path / "a.txt")[0].text == "hello"


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty; remove it"), (b"PNG\0\1\2", "is binary"), ("café".encode("latin-1"), "is not UTF-8")],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, said: str, documents) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.txt {said}"):
        documents(tmp_path / "a.txt")
