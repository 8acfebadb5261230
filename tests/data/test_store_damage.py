"""A store that is damaged or half made: refused with what to do."""

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extrapolate import files
from extrapolate.data import build as building
from extrapolate.data import shards
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.manifest import SPLITS
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.files import FORMAT

LETTERS = random.Random(0)
DOCUMENTS = [Document(str(n), "".join(LETTERS.choices("abcdefgh ", k=300))) for n in range(8)]
SETTINGS = StoreSettings(source="made up", vocab_size=280, min_heldout_tokens=40)


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


def test_a_folder_that_is_no_store_is_refused_with_the_command(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ValueError, match="is not a token store; make one with: extrapolate tokenize"):
            Store.open(path)


def test_a_flipped_bit_and_a_missing_file_name_the_file(copy: Store) -> None:
    rng = random.Random(0)
    for path in sorted(copy.path.iterdir()):
        whole = path.read_bytes()
        place = rng.randrange(len(whole))
        for damaged in (whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :], b""):
            path.write_bytes(damaged)
            with pytest.raises(UserError, match=rf"{path.name} is damaged.*delete the store and tokenise again"):
                read_all(copy)
        path.unlink()
        with pytest.raises(UserError, match=rf"{path.name} is missing: delete the store|is not a token store"):
            read_all(copy)
        path.write_bytes(whole)
    read_all(copy)


def read_all(store: Store) -> None:
    opened = Store.open(store.path)
    opened.tokenizer()
    for name in SPLITS:
        opened.split(name)


def test_only_the_files_that_are_read_are_checked(copy: Store) -> None:
    """An evaluation of a large store does not read what was trained on."""
    for path in copy.path.glob("train-*.arrow"):
        path.write_bytes(b"")
    assert copy.split("test").n_tokens
    assert copy.split("validation").n_tokens
    assert copy.tokenizer().get_vocab_size() == 280


def test_a_file_that_is_changed_is_read_again(copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_SETTLED_NS", 0)
    copy.split("test")
    shard = copy.path / copy.manifest["splits"]["test"]["shards"][0]
    before, content = shard.stat(), bytearray(shard.read_bytes())
    time.sleep(0.02)  # longer than a tick of the file system's clock
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match="is damaged"):
        copy.split("test")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"format": FORMAT + 1}, rf"by another version .*: its format is {FORMAT + 1}, .* tokenise again"),
        ({"vocab_size": 2**16 + 1}, r"manifest\.json is damaged: .*do not fit"),
        ({"splits": None}, r"manifest\.json is damaged: .*splits"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(copy: Store, changed: dict[str, Any], said: str) -> None:
    files.write_sealed(copy.path / "manifest.json", copy.manifest | changed)
    with pytest.raises(UserError, match=said):
        Store.open(copy.path)


@pytest.mark.parametrize("reading", [1, 3])  # the first, for the tokenizer, and the last, which tokenises
def test_a_source_that_fails_leaves_nothing_behind(tmp_path: Path, reading: int) -> None:
    class Failing:
        read = 0

        def __iter__(self) -> Iterator[Document]:
            self.read += 1
            yield from DOCUMENTS
            if self.read == reading:
                raise ValueError("bad row")

    with pytest.raises(ValueError, match="bad row"):
        build_store(Failing(), SETTINGS, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
