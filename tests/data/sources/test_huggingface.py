"""Datasets of the Hub. A local folder is a dataset to the library: the tests go through all of its code."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import datasets
import pytest

from extrapolate.data.documents import Document

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and no cache outside the test."""

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


def test_json_lines_another_field_and_a_column_of_splits(folder: Path, documents, write_jsonl) -> None:
    (folder / "train.parquet").unlink()
    (folder / "test.parquet").unlink()
    names = ["train", "valid", "test", "x"]
    write_jsonl(folder / "train.jsonl", [{"body": name, "split": name} for name in names])
    found = documents(f"hf:{folder}", "body")
    assert [document.text for document in found] == names
    assert [document.split for document in found] == ["train", "validation", "test", "other"]


@pytest.mark.parametrize(
    ("more", "field", "said"),
    [
        ("::nope", "text", r"cannot be read: .*nope.*train"),
        (":small", "text", r"cannot be read: .*small.*default"),
        ("", "body", r"row 0 has no 'body'; it has text, number.*`text_field`"),
    ],
)
def test_what_is_not_there_is_refused(folder: Path, more: str, field: str, said: str, documents) -> None:
    with pytest.raises(ValueError, match=said):
        documents(f"hf:{folder}{more}", field)


class Broken:
    """Breaks streams, each after some rows more than the one before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *after: int) -> None:
        self.after, self.waits, whole = list(after), list[float](), datasets.IterableDataset.__iter__

        def rows(stream: datasets.IterableDataset) -> Iterator[dict[str, object]]:
            after = self.after.pop(0) if self.after else -1
            for number, row in enumerate(whole(stream)):
                if number == after:
                    raise ConnectionError("Connection broken: IncompleteRead")
                yield row

        monkeypatch.setattr(datasets.IterableDataset, "__iter__", rows)
        monkeypatch.setattr("extrapolate.data.sources.huggingface.SAVE_EVERY", 7)
        monkeypatch.setattr("extrapolate.data.sources.huggingface.time.sleep", self.waits.append)


@pytest.mark.parametrize("after", [[7], [60, 4, 30, 0, 0, 0, 0, 0, 3]])
def test_a_broken_stream_goes_on_from_where_it_broke(
    folder: Path, after, documents, write_parquet, monkeypatch
) -> None:
    write_parquet(folder / "train.parquet", [f"text {n}" for n in range(50)], row_group_size=9)
    write_parquet(folder / "train-2.parquet", [f"text {n}" for n in range(50, 100)], row_group_size=100)
    whole = documents(f"hf:{folder}")
    assert len(whole) == 100
    broken = Broken(monkeypatch, *after)
    assert documents(f"hf:{folder}") == whole
    assert not broken.after


def test_a_stream_that_stays_broken_ends(folder: Path, documents, monkeypatch) -> None:
    broken = Broken(monkeypatch, 2, *[0] * 20)
    with pytest.raises(ValueError, match=r"cannot be read after row 1: Connection broken"):
        documents(f"hf:{folder}")
    assert broken.waits == [1, 2, 4, 8, 16, 32]
    unreached = Broken(monkeypatch, 0)
    with pytest.raises(ValueError, match=r"cannot be read: Connection broken"):
        documents(f"hf:{folder}")
    assert not unreached.waits


def test_a_null_row_has_no_text(folder: Path, documents, write_parquet) -> None:
    write_parquet(folder / "train.parquet", ["one", None, "two"])
    assert documents(f"hf:{folder}") == [Document("0", "one"), Document("1", ""), Document("2", "two")]


def test_what_is_no_dataset_is_refused_by_name(tmp_path: Path, documents) -> None:
    for name in ("nowhere", "empty", "damaged"):
        with pytest.raises(ValueError, match=rf"hf:.*{name} cannot be read"):
            documents(f"hf:{tmp_path}/{name}")
        (tmp_path / "empty").mkdir(exist_ok=True)
        (tmp_path / "damaged").mkdir(exist_ok=True)
        (tmp_path / "damaged/train.jsonl").write_text('{"text": "one"}\n{"text"\n')
