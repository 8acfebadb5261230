"""Datasets of the Hub. A local folder is a dataset to the library: the tests go through all of its code."""

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from extrapolate.data.documents import Document
from extrapolate.data.sources import open_source

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and no cache outside the test."""
    import datasets

    def refuse(*arguments: object) -> NoReturn:
        raise AssertionError(f"a test reached for the network: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path, write_parquet) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    write_parquet(folder / "train.parquet", ["one é", "two", "three"])
    write_parquet(folder / "test.parquet", ["held out"])
    return folder


def test_the_training_split_is_streamed(folder: Path, documents) -> None:
    assert documents(f"hf:{folder}") == [Document("0", "one é"), Document("1", "two"), Document("2", "three")]


def test_config_and_split_can_be_named(folder: Path, documents) -> None:
    assert [d.text for d in documents(f"hf:{folder}:default:test")] == ["held out"]
    assert [d.text for d in documents(f"hf:{folder}::test")] == ["held out"]


def test_json_lines_and_another_field(tmp_path: Path, documents, write_jsonl) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", [{"body": "one"}, {"body": "two"}])
    assert [document.text for document in documents(f"hf:{folder}", "body")] == ["one", "two"]


@pytest.mark.parametrize(
    ("more", "field", "said"),
    [
        ("::nope", "text", r"cannot be read: .*nope.*train"),
        (":small", "text", r"cannot be read: .*small.*default"),
        ("", "body", r"row 0 has no 'body'; it has text, number.*`text_field`"),
        ("::validation", "text", r"row 1: 'text' is NoneType, not text"),
    ],
)
def test_what_is_not_there_is_refused(folder: Path, more: str, field: str, said: str, documents, write_parquet) -> None:
    write_parquet(folder / "validation.parquet", ["one", None])
    with pytest.raises(ValueError, match=said):
        documents(f"hf:{folder}{more}", field)


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_data_is_refused(tmp_path: Path, there: bool, documents) -> None:
    if there:
        (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"hf:.*empty cannot be read"):
        documents(f"hf:{tmp_path}/empty")


def test_damaged_data_is_refused_by_name(tmp_path: Path, documents) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"text": "one"}\n{"text"\n')
    with pytest.raises(ValueError, match=r"hf:.*damaged"):
        documents(f"hf:{folder}")


@pytest.mark.parametrize("spec", ["hf:", "hf::default:train"])
def test_no_name_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=r"names no dataset: expected hf:NAME"):
        open_source(spec)


def test_a_column_of_splits_is_read(tmp_path: Path, documents, write_jsonl) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", [{"text": name, "split": name} for name in ("train", "valid", "test", "x")])
    assert [d.split for d in documents(f"hf:{folder}")] == ["train", "validation", "test", "other"]
