"""Stores of the first format, which were made before there were hashes."""

import shutil
from pathlib import Path

import pytest

from extrapolate.data.store import SPLITS, Store
from extrapolate.errors import UserError

FIRST = Path(__file__).parents[1] / "fixtures/format-1/store"


def test_a_store_of_the_first_format_is_read() -> None:
    store = Store.open(FIRST)
    assert [store.split(name).n_tokens for name in SPLITS] == [4242, 303, 1515]
    assert store.tokenizer().get_vocab_size() == store.vocab_size == 29
    assert store.corpus_hash == "e11bd6eb9efcd88d"


def test_a_flipped_token_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    store = Store.open(Path(shutil.copytree(FIRST, tmp_path / "store")))
    shard = store.path / "test-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2 | 1] ^= 1 << 7
    shard.write_bytes(content)
    with pytest.raises(UserError, match=r"test-00000\.arrow is damaged: .*tokenise again"):
        store.split("test")


def test_the_name_of_an_entry_is_not_changed_unseen(tmp_path: Path) -> None:
    shutil.copytree(FIRST, tmp_path / "store")
    path = tmp_path / "store/manifest.json"
    path.write_text(path.read_text().replace("longest_document", "longest_documen4"))
    with pytest.raises(UserError, match=r"manifest\.json is damaged: splits\.train\.longest_documen"):
        Store.open(path.parent)
