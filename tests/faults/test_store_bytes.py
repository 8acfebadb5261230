"""A token store with random damage: refused with one message, or no number that it holds is another."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate import files
from extrapolate.data.manifest import SPLITS
from extrapolate.data.shards import sha256
from extrapolate.data.store import Store
from extrapolate.errors import UserError

flips, fuzzing = settings.get_profile("flips"), settings.get_profile("fuzzing")


@pytest.fixture(scope="module")
def small(word_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of a few documents; a test that damages a file puts it back."""
    return Store.open(Path(shutil.copytree(word_store.path, tmp_path_factory.mktemp("faults") / "store")))


def read(path: Path) -> Store:
    """Reads all of a store, as commands do."""
    store = Store.open(path)
    store.tokenizer()
    for name in SPLITS:
        split = store.split(name)
        tokens = split.slice(0, split.n_tokens)
        assert int(tokens.max(initial=0)) < store.vocab_size
        assert len(split.ids) == len(split.lengths) == len(split.bytes)
    return store


class Damaged:
    """A file of a store that holds something else for a while."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content, self.before = path, content, path.read_bytes()

    def __enter__(self) -> None:
        self.path.write_bytes(self.content)

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.before)


def check_refused_or_read(store: Store) -> None:
    """Any other exception than UserError is a failure."""
    said = "damaged"
    try:
        read(store.path)
    except UserError as error:
        said = str(error)
    assert "damaged" in said or "another version" in said
    assert len(said) < 1000


@flips
@given(data=st.data())
def test_every_flipped_bit_is_refused(small: Store, damage: Any, data: st.DataObject) -> None:
    names = sorted(path.name for path in small.path.iterdir())
    assert len(names) == 6
    path = small.path / data.draw(st.sampled_from(names))
    content = path.read_bytes()
    with Damaged(path, data.draw(damage.flipped(content))), pytest.raises(UserError, match="damaged"):
        read(small.path)


def test_what_the_tests_damage_is_whole_otherwise(small: Store) -> None:
    assert read(small.path).manifest == small.manifest


@fuzzing
@given(data=st.data())
def test_a_manifest_of_any_bytes(small: Store, damage: Any, data: st.DataObject) -> None:
    path = small.path / "manifest.json"
    with Damaged(path, data.draw(damage.mutated(path.read_bytes()))):
        check_refused_or_read(small)


@fuzzing
@given(data=st.data())
def test_a_sealed_manifest_that_says_anything(small: Store, damage: Any, data: st.DataObject) -> None:
    record = data.draw(damage.mutated_json(small.manifest))
    path = small.path / "manifest.json"
    with Damaged(path, b""):
        files.write_sealed(path, record)
        check_refused_or_read(small)


@fuzzing
@given(data=st.data())
def test_a_shard_of_any_bytes_that_has_its_hash(small: Store, damage: Any, data: st.DataObject) -> None:
    path, manifest = small.path / "test-00000.arrow", small.path / "manifest.json"
    with Damaged(path, data.draw(damage.mutated(path.read_bytes()))), Damaged(manifest, b""):
        content = {"bytes": path.stat().st_size, "sha256": sha256(path)}
        files.write_sealed(manifest, small.manifest | {"files": small.manifest["files"] | {path.name: content}})
        check_refused_or_read(small)
