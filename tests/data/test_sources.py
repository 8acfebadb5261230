"""Where documents come from: every kind of source, and every way in which it can be unusable."""

import json
import re
import socket
import sysconfig
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extrapolate.data.sources import Document, open_source


def documents(spec: object, text_field: str = "text") -> list[Document]:
    return list(open_source(str(spec), text_field))


def write_jsonl(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, texts: list[object], column: str = "text", **options: object) -> Path:
    pq.write_table(pa.table({column: texts, "number": list(range(len(texts)))}), path, **options)
    return path


def assert_unique_ids(found: list[Document]) -> None:
    assert len({document.id for document in found}) == len(found)


class TestStandardLibrary:
    def test_documents_are_the_sources_without_tests_and_packages(self) -> None:
        found = documents("stdlib")
        root = Path(sysconfig.get_path("stdlib"))
        by_id = {document.id: document.text for document in found}
        assert_unique_ids(found)
        assert list(by_id) == sorted(by_id, key=lambda name: Path(name))
        assert by_id["argparse.py"] == (root / "argparse.py").read_text(encoding="utf-8")
        assert "json/decoder.py" in by_id
        unwanted = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib-dynload"}
        assert not [name for name in by_id if unwanted & set(Path(name).parts)]
        assert all(by_id.values())

    def test_an_iteration_starts_anew(self) -> None:
        source = open_source("stdlib")
        first = [next(iter(source)) for _ in range(2)]
        assert first[0] == first[1]

    def test_a_stripped_python_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
        with pytest.raises(ValueError, match=r"no standard-library sources.*extrapolate tokenize FOLDER"):
            open_source("stdlib")


class TestTextFiles:
    @pytest.mark.parametrize("suffix", [".txt", ".md"])
    def test_a_file_is_one_document(self, tmp_path: Path, suffix: str) -> None:
        text = "First line,\r\nsecond: naïve café, Ελληνικά, 🙂\n\n"
        path = tmp_path / f"a{suffix}"
        path.write_bytes(text.encode())
        assert documents(path) == [Document(f"a{suffix}", text)]

    def test_a_byte_order_mark_is_not_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello")
        assert documents(tmp_path / "a.txt")[0].text == "hello"

    def test_an_empty_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "void.txt").touch()
        with pytest.raises(ValueError, match=r"void\.txt is empty; remove it"):
            open_source(str(tmp_path / "void.txt"))

    def test_a_binary_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "image.txt").write_bytes(b"PNG\0\1\2")
        with pytest.raises(ValueError, match=r"image\.txt is binary"):
            documents(tmp_path / "image.txt")

    def test_another_character_set_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "old.txt").write_bytes("café".encode("latin-1"))
        with pytest.raises(ValueError, match=r"old\.txt is not UTF-8"):
            documents(tmp_path / "old.txt")

    def test_another_kind_of_file_is_refused_with_those_that_can_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "table.csv").write_text("a,b")
        with pytest.raises(ValueError, match=r"table\.csv: cannot read '\.csv' files; expected \.txt, \.md, \.jsonl"):
            open_source(str(tmp_path / "table.csv"))

    def test_a_missing_file_is_refused_with_what_a_source_can_be(self, tmp_path: Path) -> None:
        message = r"no source '.*absent\.txt'.*stdlib, synthetic:NAME, hf:NAME, a file, a folder"
        with pytest.raises(ValueError, match=message):
            open_source(str(tmp_path / "absent.txt"))


class TestJsonLines:
    def test_a_row_is_a_document_named_by_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"text": "one"}\n\n{"text": "two é", "other": 3}\n', encoding="utf-8")
        assert documents(path) == [Document("a.jsonl:1", "one"), Document("a.jsonl:3", "two é")]

    def test_another_field_can_be_named(self, tmp_path: Path) -> None:
        path = write_jsonl(tmp_path / "a.jsonl", [{"text": "no", "body": "yes"}])
        assert [document.text for document in documents(path, "body")] == ["yes"]

    def test_a_missing_field_is_refused_with_those_there(self, tmp_path: Path) -> None:
        path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}, {"body": "two", "title": "t"}])
        with pytest.raises(ValueError, match=r"a\.jsonl, line 2 has no 'text'; it has body, title.*--text-field"):
            documents(path)

    @pytest.mark.parametrize(("value", "kind"), [(None, "NoneType"), (3, "int"), (["a"], "list")])
    def test_a_value_that_is_not_text_is_refused(self, tmp_path: Path, value: object, kind: str) -> None:
        path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}, {"text": value}])
        with pytest.raises(ValueError, match=rf"line 2: 'text' is {kind}, not text"):
            documents(path)

    def test_invalid_json_is_refused_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n{"text": \n')
        with pytest.raises(ValueError, match=r"a\.jsonl, line 3 is not valid JSON"):
            documents(tmp_path / "a.jsonl")

    def test_a_row_that_is_no_object_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="line 1 is not a JSON object"):
            documents(write_jsonl(tmp_path / "a.jsonl", [["text"]]))

    @pytest.mark.parametrize(("raw", "what"), [(b'{"text": "caf\xe9"}', "UTF-8"), (b'{"text": "\0"}', "binary")])
    def test_a_line_that_is_not_utf8_text_is_refused(self, tmp_path: Path, raw: bytes, what: str) -> None:
        (tmp_path / "a.jsonl").write_bytes(b'{"text": "one"}\n' + raw + b"\n")
        with pytest.raises(ValueError, match=f"line 2 is .*{what}"):
            documents(tmp_path / "a.jsonl")

    def test_half_a_surrogate_pair_is_refused_with_its_line(self, tmp_path: Path) -> None:
        # JSON can escape what UTF-8 cannot encode; no tokenizer takes it.
        (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "\\ud800"}\n')
        with pytest.raises(ValueError, match="line 2"):
            documents(tmp_path / "a.jsonl")


class TestParquet:
    def test_a_row_is_a_document_named_by_its_number(self, tmp_path: Path) -> None:
        # More rows than are read at a time.
        texts = [f"text {number}" for number in range(600)]
        path = write_parquet(tmp_path / "a.parquet", texts, row_group_size=100)
        found = documents(path)
        assert [document.text for document in found] == texts
        assert found[599].id == "a.parquet:599"
        assert_unique_ids(found)

    def test_another_column_can_be_named(self, tmp_path: Path) -> None:
        assert [d.text for d in documents(write_parquet(tmp_path / "a.parquet", ["x"], "body"), "body")] == ["x"]

    def test_a_missing_column_is_refused_with_those_there(self, tmp_path: Path) -> None:
        path = write_parquet(tmp_path / "a.parquet", ["x"], "body")
        with pytest.raises(ValueError, match=r"a\.parquet has no 'text'; it has body, number.*--text-field"):
            documents(path)

    def test_a_null_is_refused_with_its_row(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"row 1: 'text' is NoneType, not text"):
            documents(write_parquet(tmp_path / "a.parquet", ["x", None]))

    def test_a_column_of_numbers_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"row 0: 'number' is int, not text"):
            documents(write_parquet(tmp_path / "a.parquet", ["x"]), "number")

    def test_a_file_that_is_no_parquet_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.parquet").write_bytes(b"not a table at all")
        with pytest.raises(ValueError, match=r"a\.parquet is not a Parquet file"):
            documents(tmp_path / "a.parquet")

    @pytest.mark.parametrize("where", ["in the middle", "at the end"])
    def test_a_damaged_file_is_refused_by_name(self, tmp_path: Path, where: str) -> None:
        path = write_parquet(tmp_path / "a.parquet", [f"text {number}" for number in range(1000)])
        raw = bytearray(path.read_bytes())
        # The first page follows the magic number; the description of the file ends it.
        place = slice(4, 40) if where == "in the middle" else slice(len(raw) - 60, len(raw) - 20)
        raw[place] = b"\xff" * (place.stop - place.start)
        path.write_bytes(raw)
        with pytest.raises(ValueError, match=r"a\.parquet"):
            documents(path)

    def test_text_that_is_not_utf8_is_refused_by_name(self, tmp_path: Path) -> None:
        column = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        with pytest.raises(ValueError, match=r"a\.parquet"):
            documents(tmp_path / "a.parquet")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with every kind of file, two of them of the same name, and one that is none of ours."""
    folder = tmp_path / "mixed"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("text")
    (folder / "inner" / "a.txt").write_text("inner text")
    (folder / "b.md").write_text("# title")
    write_jsonl(folder / "c.jsonl", [{"text": "line 1"}, {"text": "line 2"}])
    write_parquet(folder / "inner" / "d.parquet", ["row 0", "row 1"])
    (folder / "photo.png").write_bytes(b"\0\1")
    return folder


class TestFoldersAndGlobs:
    TEXTS = frozenset({"text", "inner text", "# title", "line 1", "line 2", "row 0", "row 1"})

    def test_a_folder_is_read_whole_in_a_fixed_order(self, mixed: Path) -> None:
        found = documents(mixed)
        assert {document.text for document in found} == self.TEXTS
        assert len(found) == len(self.TEXTS)
        assert_unique_ids(found)
        assert documents(mixed) == found
        assert {document.id for document in found} >= {"a.txt", "inner/a.txt", "c.jsonl:2", "inner/d.parquet:0"}

    def test_ids_do_not_say_where_the_folder_is(self, mixed: Path, tmp_path: Path) -> None:
        before = documents(mixed)
        assert documents(mixed.rename(tmp_path / "elsewhere")) == before

    def test_a_glob_takes_what_matches(self, mixed: Path) -> None:
        found = documents(f"{mixed}/**/*.txt")
        assert {document.text for document in found} == {"text", "inner text"}
        assert_unique_ids(found)

    def test_a_glob_may_start_at_home(self, mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # A quoted glob reaches the program with its tilde, as a quoted folder does.
        monkeypatch.setenv("HOME", str(mixed))
        assert [document.text for document in documents("~/inner/*.txt")] == ["inner text"]

    def test_a_relative_glob_works(self, mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(mixed)
        assert [document.id for document in documents("inner/*.txt")] == ["inner/a.txt"]

    def test_a_glob_that_matches_another_kind_of_file_is_refused(self, mixed: Path) -> None:
        with pytest.raises(ValueError, match=r"photo\.png: cannot read '\.png'"):
            open_source(f"{mixed}/*")

    def test_a_glob_that_matches_nothing_is_refused(self, mixed: Path) -> None:
        with pytest.raises(ValueError, match=r"no source '.*\*\.text'"):
            open_source(f"{mixed}/*.text")

    def test_a_folder_with_nothing_to_read_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "photo.png").write_bytes(b"\0\1")
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path} holds no .txt, .md, .jsonl, .parquet file")):
            open_source(str(tmp_path))

    def test_an_empty_file_in_a_folder_is_refused_by_name(self, mixed: Path) -> None:
        (mixed / "void.md").touch()
        with pytest.raises(ValueError, match=r"void\.md is empty"):
            open_source(str(mixed))


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and no cache outside the test."""
    import datasets

    def refuse(*arguments: object) -> NoReturn:
        raise AssertionError(f"a test reached for the network: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.usefixtures("offline")
class TestHuggingFace:
    """A folder with data files is a dataset to the library: what the tests read goes through all of its code."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "set"
        folder.mkdir()
        write_parquet(folder / "train.parquet", ["one é", "two", "three"])
        write_parquet(folder / "test.parquet", ["held out"])
        return folder

    def test_the_training_split_is_streamed(self, folder: Path) -> None:
        assert documents(f"hf:{folder}") == [Document("0", "one é"), Document("1", "two"), Document("2", "three")]

    def test_config_and_split_can_be_named(self, folder: Path) -> None:
        assert [d.text for d in documents(f"hf:{folder}:default:test")] == ["held out"]
        assert [d.text for d in documents(f"hf:{folder}::test")] == ["held out"]

    def test_json_lines_and_another_field(self, tmp_path: Path) -> None:
        folder = tmp_path / "lines"
        folder.mkdir()
        write_jsonl(folder / "train.jsonl", [{"body": "one"}, {"body": "two"}])
        assert [document.text for document in documents(f"hf:{folder}", "body")] == ["one", "two"]

    def test_an_unknown_split_is_refused_with_those_there(self, folder: Path) -> None:
        with pytest.raises(ValueError, match=r"cannot be read: .*nope.*train"):
            documents(f"hf:{folder}::nope")

    def test_an_unknown_config_is_refused(self, folder: Path) -> None:
        with pytest.raises(ValueError, match=r"cannot be read: .*small.*default"):
            documents(f"hf:{folder}:small")

    def test_a_missing_column_is_refused_with_those_there(self, folder: Path) -> None:
        with pytest.raises(ValueError, match=r"row 0 has no 'body'; it has text, number.*--text-field"):
            documents(f"hf:{folder}", "body")

    def test_a_null_is_refused_with_its_row(self, tmp_path: Path) -> None:
        folder = tmp_path / "nulls"
        folder.mkdir()
        write_parquet(folder / "train.parquet", ["one", None])
        with pytest.raises(ValueError, match=r"row 1: 'text' is NoneType, not text"):
            documents(f"hf:{folder}")

    @pytest.mark.parametrize("there", [True, False])
    def test_a_folder_without_data_is_refused(self, tmp_path: Path, there: bool) -> None:
        if there:
            (tmp_path / "empty").mkdir()
        with pytest.raises(ValueError, match=r"hf:.*empty cannot be read"):
            documents(f"hf:{tmp_path}/empty")

    def test_damaged_data_is_refused_by_name(self, tmp_path: Path) -> None:
        folder = tmp_path / "damaged"
        folder.mkdir()
        (folder / "train.jsonl").write_text('{"text": "one"}\n{"text"\n')
        with pytest.raises(ValueError, match=r"hf:.*damaged"):
            documents(f"hf:{folder}")

    @pytest.mark.parametrize("spec", ["hf:", "hf::default:train"])
    def test_no_name_is_refused(self, spec: str) -> None:
        with pytest.raises(ValueError, match=r"names no dataset: expected hf:NAME"):
            open_source(spec)
