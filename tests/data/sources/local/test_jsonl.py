"""JSON Lines, and every way in which a line can be unusable."""

import json
from pathlib import Path

import pytest

from extrapolate.data.documents import Document
from extrapolate.errors import UserError


def test_a_row_is_a_document_named_by_its_line(tmp_path: Path, documents) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n\n{"text": "two é", "other": 3}\n', encoding="utf-8")
    assert documents(path) == [Document("a.jsonl:1", "one"), Document("a.jsonl:3", "two é")]


def test_another_field_can_be_named(tmp_path: Path, documents, write_jsonl) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "no", "body": "yes"}])
    assert [document.text for document in documents(path, "body")] == ["yes"]


def test_a_missing_field_is_refused_with_those_there(tmp_path: Path, documents, write_jsonl) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}, {"body": "two", "title": "t"}])
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2 has no 'text'; it has body, title.*`text_field`"):
        documents(path)


@pytest.mark.parametrize(("value", "kind"), [(None, "NoneType"), (3, "int"), (["a"], "list")])
def test_a_value_that_is_not_text_is_refused(tmp_path: Path, value: object, kind: str, documents, write_jsonl) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}, {"text": value}])
    with pytest.raises(ValueError, match=rf"line 2: 'text' is {kind}, not text"):
        documents(path)


def test_invalid_json_is_refused_with_its_line(tmp_path: Path, documents) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n{"text": \n')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 3 is not valid JSON"):
        documents(tmp_path / "a.jsonl")


def test_a_row_that_is_no_object_is_refused(tmp_path: Path, documents, write_jsonl) -> None:
    with pytest.raises(ValueError, match="line 1 is not a JSON object"):
        documents(write_jsonl(tmp_path / "a.jsonl", [["text"]]))


@pytest.mark.parametrize(("raw", "what"), [(b'{"text": "caf\xe9"}', "UTF-8"), (b'{"text": "\0"}', "binary")])
def test_a_line_that_is_not_utf8_text_is_refused(tmp_path: Path, raw: bytes, what: str, documents) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one"}\n' + raw + b"\n")
    with pytest.raises(ValueError, match=f"line 2 is .*{what}"):
        documents(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "raw",
    ["[" * 10**5, '{"text": ' * 10**5, '{"text": ' + "1" * 5000 + "}", "null", "NaN"],
    ids=lambda raw: raw[:12],
)
def test_a_line_that_python_cannot_read_is_refused_with_its_number(tmp_path: Path, raw: str, documents) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "one"}}\n{raw}\n')
    with pytest.raises(UserError, match=r"a\.jsonl, line 2 is not (valid JSON: .*(recursion|digits)|a JSON object)"):
        documents(tmp_path / "a.jsonl")


def test_a_line_for_which_memory_does_not_suffice_is_refused(tmp_path: Path, documents, monkeypatch) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    whole = json.loads

    def loads(text: str) -> object:
        if "two" in text:
            raise MemoryError
        return whole(text)

    monkeypatch.setattr("extrapolate.data.sources.local.jsonl.json.loads", loads)
    with pytest.raises(UserError, match=r"a\.jsonl, line 2 is longer than memory suffices for"):
        documents(tmp_path / "a.jsonl")


def test_a_text_that_takes_more_memory_to_tokenise_than_there_is_is_refused(
    tmp_path: Path, documents, write_jsonl, monkeypatch
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "é" * 500_000}, {"text": "é" * 500_001}])
    monkeypatch.setattr("extrapolate.data.documents.memory_limit", lambda: 10**8)
    with pytest.raises(UserError, match=r"a\.jsonl:2 has 1 MB of text: .* at least 0\.1 GB .* has 0\.1 GB: cut it"):
        documents(path)


def test_half_a_surrogate_pair_is_refused_with_its_line(tmp_path: Path, documents) -> None:
    # JSON can escape what UTF-8 cannot encode; no tokenizer takes it.
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "\\ud800"}\n')
    with pytest.raises(ValueError, match="line 2"):
        documents(tmp_path / "a.jsonl")


def test_a_column_of_splits_is_read(tmp_path: Path, documents, write_jsonl) -> None:
    names = ["train", "dev", "val", "test", "all", None, 3]
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a", "split": name} for name in names] + [{"text": "a"}])
    expected = ["train", "validation", "validation", "test", "other", "other", "other", None]
    assert [document.split for document in documents(path)] == expected
