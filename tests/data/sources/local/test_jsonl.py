"""JSON Lines, and how a line can be unusable."""

from pathlib import Path

import pytest

from extrapolate.data.documents import Document
from extrapolate.errors import UserError


def test_a_row_is_a_document_named_by_its_line(tmp_path: Path, documents) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "body": "yes"}\n\n{"text": "two é", "other": 3}\n', encoding="utf-8")
    assert documents(path) == [Document("a.jsonl:1", "one"), Document("a.jsonl:3", "two é")]
    path.write_text('{"text": "one", "body": "yes"}\n')
    assert documents(path, "body") == [Document("a.jsonl:1", "yes")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"body": "two", "title": "t"}', "has no 'text'; it has body, title.*`text_field`"),
        (b'{"text": [1]}', "'text' is list, not text"),
        (b'{"text": ', "is not valid JSON"),
        (b'{"text": "\0"}', "is .*binary"),
        (b'{"text": "\\ud800"}', ""),  # JSON can escape what UTF-8 cannot encode; no tokenizer takes it
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_line_that_is_no_document_is_refused_with_its_number(
    tmp_path: Path, line: bytes, said: str, documents
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one"}\n' + line + b"\n")
    with pytest.raises(UserError, match=rf"a\.jsonl, line 2\b.*{said}"):
        documents(tmp_path / "a.jsonl")


def test_a_text_that_takes_more_memory_to_tokenise_than_there_is_is_refused(
    tmp_path: Path, documents, write_jsonl, monkeypatch
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "é" * 500_000}, {"text": "é" * 500_001}])
    monkeypatch.setattr("extrapolate.data.documents.memory_limit", lambda: 10**8)
    with pytest.raises(UserError, match=r"a\.jsonl:2 has 1 MB of text: .* at least 0\.1 GB .* has 0\.1 GB: cut it"):
        documents(path)


def test_a_column_of_splits_is_read(tmp_path: Path, documents, write_jsonl) -> None:
    names = ["train", "dev", "val", "test", "all", None, 3]
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a", "split": name} for name in names] + [{"text": "a"}])
    expected = ["train", "validation", "validation", "test", "other", "other", "other", None]
    assert [document.split for document in documents(path)] == expected
