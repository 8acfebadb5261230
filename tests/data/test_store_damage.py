"""A store that is damaged, half made, or being made by another: refused with what to do, or made again."""

import contextlib
import os
import random
import re
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from copy import deepcopy as copied
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models

from extrapolate import files
from extrapolate.data import build as building
from extrapolate.data import shards
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.manifest import SPLITS, Manifest
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.files import FORMAT

LETTERS = random.Random(0)
DOCUMENTS = [Document(str(n), "".join(LETTERS.choices("abcdefgh ", k=300))) for n in range(8)]
SETTINGS = StoreSettings(source="made up", vocab_size=280, min_heldout_tokens=40)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with several files of training tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "BATCH_CHARACTERS", 1000)
        patch.setattr(shards, "BATCH_TOKENS", 250)
        patch.setattr(shards, "SHARD_TOKENS", 300)
        return build_store(DOCUMENTS, SETTINGS, tmp_path_factory.mktemp("stores") / "small")


@pytest.fixture
def copy(store: Store, tmp_path: Path) -> Store:
    """A store of the test's own, to damage."""
    return Store.open(Path(shutil.copytree(store.path, tmp_path / "copy")))


class TestDamage:
    def test_a_folder_that_is_no_store_is_refused_with_the_command(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "absent"):
            with pytest.raises(ValueError, match="is not a token store; make one with: extrapolate tokenize"):
                Store.open(path)

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 1}', b"\xff", b"half"])
    def test_a_damaged_manifest_is_refused(self, copy: Store, content: bytes) -> None:
        manifest = copy.path / "manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:200] if content == b"half" else content)
        with pytest.raises(UserError, match=r"manifest\.json is damaged.*delete the store and tokenise again"):
            Store.open(copy.path)

    def test_a_damaged_or_missing_file_is_refused(self, copy: Store) -> None:
        shard, tokenizer = copy.path / copy.manifest["splits"]["test"]["shards"][0], copy.path / "tokenizer.json"
        tokenizer.write_text(tokenizer.read_text().replace('"id": 0', '"id":0 '))
        for call in (copy.tokenizer, copy.tokenizer_json):
            with pytest.raises(UserError, match=r"tokenizer\.json is damaged: .* the hash it was written with; delete"):
                call()
        raw = shard.read_bytes()
        for kept in (0, len(raw) - 1):
            shard.write_bytes(raw[:kept])
            with pytest.raises(UserError, match=rf"{shard.name} is damaged: .* the hash it was written with; delete"):
                copy.split("test")
        shard.unlink()
        with pytest.raises(UserError, match=rf"{shard.name} is missing: delete the store and tokenise again"):
            copy.split("test")

    def test_a_flipped_bit_names_its_file(self, copy: Store) -> None:
        def read() -> object:
            opened = Store.open(copy.path)
            return opened.tokenizer(), [opened.split(name) for name in SPLITS]

        rng = random.Random(0)
        for path in sorted(copy.path.iterdir()):
            whole = path.read_bytes()
            for place in rng.sample(range(len(whole)), 10):
                damaged = bytearray(whole)
                damaged[place] ^= 1 << rng.randrange(8)
                path.write_bytes(damaged)
                with pytest.raises(UserError, match=rf"{path.name} is damaged"):
                    read()
            path.write_bytes(whole)

    def test_only_the_files_that_are_read_are_checked(self, copy: Store) -> None:
        """An evaluation of a large store does not read what was trained on."""
        for path in copy.path.glob("train-*.arrow"):
            path.write_bytes(b"")
        assert copy.split("test").n_tokens
        assert copy.split("validation").n_tokens
        assert copy.tokenizer().get_vocab_size() == 280


class TestOnce:
    def test_a_file_that_is_changed_is_read_again(self, copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shards, "_SETTLED_NS", 0)
        copy.split("test")
        shard = copy.path / copy.manifest["splits"]["test"]["shards"][0]
        before = shard.stat()
        time.sleep(0.02)  # longer than a tick of the file system's clock
        flip(shard, before.st_size // 2)
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(UserError, match="is damaged"):
            copy.split("test")

    def test_two_changes_within_a_tick_of_the_clock_are_both_seen(self, copy: Store) -> None:
        shard = copy.path / copy.manifest["splits"]["test"]["shards"][0]
        for _ in range(20):
            for damaged in (False, True):
                with pytest.raises(UserError, match="is damaged") if damaged else contextlib.nullcontext():
                    copy.split("test")
                flip(shard, 1000)


def rewritten(store: Store, change: Callable[[dict[str, Any]], object]) -> Store:
    """The store with another manifest, of the hash that it must have, as one that means harm would make it."""
    record = copied(store.manifest)
    change(record)
    files.write_sealed(store.path / "manifest.json", record)
    return Store.open(store.path)


TRAIN = ("splits", "train")


class TestManifest:
    """What is sealed is not for that reason what a manifest says."""

    @pytest.mark.parametrize(
        ("place", "value", "said"),
        [
            (("splits",), None, "splits"),
            (("splits", "dev"), {}, "splits.dev"),
            ((*TRAIN, "tokens"), -1, "splits.train.tokens"),
            ((*TRAIN, "tokens"), "7", "splits.train.tokens"),
            ((*TRAIN, "shards"), ["../x-00000.arrow"], "splits.train.shards"),
            ((*TRAIN, "shards"), ["train-00000.arrow"] * 2, "files are not those"),
            (("files", "train-00000.arrow"), {"bytes": 3, "sha256": "0" * 63}, "files.train-00000.arrow"),
            (("files", "../x"), {"bytes": 3, "sha256": "0" * 64}, "files are not those"),
            (("vocab_size",), True, "vocab_size"),
            (("vocab_size",), 2**16 + 1, "do not fit"),
            (("eos_id",), 280, "do not fit"),
            (("dtype",), "float64", "do not fit"),
            (("settings", "source"), {"deep": [1]}, "settings.source"),
            (("corpus_hash",), "../../../../etc", "corpus_hash"),
            (("more",), 1, "more"),
            (("format",), "1", "does not say its format"),
            ((*TRAIN, "late"), [1, 0], "places that cannot be"),
            ((*TRAIN, "late"), [0, 2**40], "places that cannot be"),
        ],
    )
    def test_an_entry_that_cannot_be_is_refused(self, copy: Store, place: Any, value: Any, said: str) -> None:
        def change(record: dict[str, Any]) -> None:
            for name in place[:-1]:
                record = record[name]
            record[place[-1]] = value

        with pytest.raises(UserError, match=rf"manifest\.json is damaged: .*{re.escape(said)}.*tokenise again"):
            rewritten(copy, change)

    def test_an_entry_that_is_missing_is_refused(self, copy: Store) -> None:
        for name in (name for name, field in Manifest.model_fields.items() if field.is_required()):
            with pytest.raises(UserError, match=r"manifest\.json is damaged"):
                rewritten(copy, lambda record, name=name: record.pop(name))
        files.write_json(copy.path / "manifest.json", copy.manifest)  # without its own hash
        with pytest.raises(UserError, match=r"manifest\.json is damaged"):
            Store.open(copy.path)

    @pytest.mark.parametrize("number", [FORMAT + 1, 0])
    def test_one_of_another_format_is_refused_with_what_to_do(self, copy: Store, number: int) -> None:
        with pytest.raises(UserError, match=rf"by another version .*: its format is {number}, .* tokenise again"):
            rewritten(copy, lambda record: record.update(format=number))

    @pytest.mark.parametrize("name", ["documents", "tokens", "bytes", "longest_document"])
    def test_counts_are_those_of_the_files(self, copy: Store, name: str) -> None:
        store = rewritten(copy, lambda record: record["splits"]["test"].update({name: 1}))
        with pytest.raises(UserError, match="test shards do not hold what its manifest says; delete the store"):
            store.split("test")


def documents_of(*tokens: list[int], dtype: pa.DataType | None = None) -> pa.Table:
    rows = pa.array(tokens, pa.large_list(dtype or pa.uint16()))
    return pa.table({"id": [str(n) for n in range(len(tokens))], "bytes": [3] * len(tokens), "tokens": rows})


class TestTokens:
    """Files that have the hash that the manifest says, and hold what no evaluation can read."""

    def opened(self, store: Store, table: pa.Table, patch: Callable[[Path], object] = lambda path: None) -> None:
        path = store.path / store.manifest["splits"]["test"]["shards"][0]
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        patch(path)
        rewritten(store, lambda record: record["files"].update({path.name: shards.content(path)})).split("test")

    @pytest.mark.parametrize(
        ("tokens", "said"),
        [
            ([[5, 280, 0]], "no document"),  # beyond the vocabulary
            ([[5, 6]], "no document"),  # no end
            ([[5, 0], []], "no document"),
            ([[5, 0], [None, 0]], "no document"),
            ([[5, 0], None], "no document"),
            ([[5, 6, 0]], "do not hold what its manifest says"),
        ],
    )
    def test_what_is_no_document_is_refused(self, copy: Store, tokens: Any, said: str) -> None:
        assert copy.manifest["eos_id"] == 0
        with pytest.raises(UserError, match=rf"is damaged: .*{said}.*tokenise again"):
            self.opened(copy, documents_of(*tokens))

    @pytest.mark.parametrize(
        "table",
        [
            pa.table({"name": ["a"]}),
            documents_of([5, 0], dtype=pa.int64()),
            documents_of([5, 0]).set_column(1, "bytes", pa.array(["3"])),
            documents_of([5, 0]).set_column(1, "bytes", pa.array([None], pa.int64())),
            documents_of([5, 0]).set_column(2, "tokens", pa.array([[5, 0]], pa.list_(pa.uint16()))),
        ],
        ids=lambda table: str(table.schema).replace("\n", " ")[:60],
    )
    def test_other_columns_are_refused(self, copy: Store, table: pa.Table) -> None:
        with pytest.raises(UserError, match=r"test-00000\.arrow is damaged: .*tokenise again"):
            self.opened(copy, table)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (struct.pack("<3q", 0, 2, 4), struct.pack("<3q", 0, 2, 2**40)),
            (struct.pack("<3q", 0, 2, 4), struct.pack("<3q", 0, -2, 4)),
            (struct.pack("<3q", 0, 2, 4), struct.pack("<3q", -2, 2, 4)),
            (struct.pack("<3i", 0, 1, 2), struct.pack("<3i", 0, 2**30, 2)),
            (b"01\0", b"\xff1\0"),
        ],
    )
    def test_places_outside_of_the_file_are_refused(self, copy: Store, old: bytes, new: bytes) -> None:
        def patch(path: Path) -> None:
            content = path.read_bytes()
            assert content.count(old) == 1
            path.write_bytes(content.replace(old, new))

        with pytest.raises(UserError, match=r"test-00000\.arrow is damaged: .*tokenise again"):
            self.opened(copy, documents_of([5, 0], [6, 0]), patch)

    def test_the_tokenizer_must_have_the_vocabulary(self, copy: Store) -> None:
        """What tells the bytes of a token would end beyond its table."""
        path = copy.path / "tokenizer.json"
        word_level = Tokenizer(models.WordLevel({"a": 0, "<eos>": 1}, unk_token="a"))
        word_level.save(str(path))
        store = rewritten(copy, lambda record: record["files"].update({path.name: shards.content(path)}))
        with pytest.raises(UserError, match=r"tokenizer\.json is damaged: it is of another vocabulary"):
            store.tokenizer()


@pytest.mark.parametrize("reading", [1, 3])  # the first, for the tokenizer, and the last, which tokenises
@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt()])
def test_a_source_that_fails_leaves_nothing_behind(tmp_path: Path, error: BaseException, reading: int) -> None:
    class Failing:
        read = 0

        def __iter__(self) -> Iterator[Document]:
            self.read += 1
            yield from DOCUMENTS
            if self.read == reading:
                raise error

    with pytest.raises(type(error)):
        build_store(Failing(), SETTINGS, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
