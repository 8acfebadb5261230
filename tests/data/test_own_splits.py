"""The splits that a source names itself are used if they are whole, and nothing that they hold out is learned from."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from extrapolate.data import shards
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import OTHER, Document
from extrapolate.data.store import SPLITS, Store

DRAWS = random.Random(0)
WORDS = ["".join(DRAWS.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(40)]
# The first eight are held out, four each; some are shorter than `min_heldout_tokens`.
NAMED = ["test", "validation"] * 4 + ["train"] * 32
SETTINGS = StoreSettings(vocab_size=345, min_heldout_tokens=50)


def documents(names: list[str | None]) -> list[Document]:
    """Every document has a word of its own, which it says often enough to become a token."""
    return [
        Document(word, " ".join([word] * (80 if row % 3 else 30)), split)
        for row, (word, split) in enumerate(zip(WORDS, names, strict=True))
    ]


def splits(store: Store) -> dict[str, str]:
    return {name: split for split in SPLITS for name in store.split(split).ids}


def learned(store: Store) -> set[str]:
    return {word for word in WORDS if f"Ġ{word}" in store.tokenizer().get_vocab()}


def test_splits_that_the_source_names_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_TOKENS", 400)
    store = build_store(documents(NAMED), replace(SETTINGS, vocab_size=460), tmp_path / "store")
    assert splits(store) == dict(zip(WORDS, NAMED, strict=True))
    assert store.split("train").ids == WORDS[8:]
    assert store.manifest["split_column"] == "used"
    assert learned(store) == set(WORDS[8:])
    assert store.manifest["near_duplicates"] == {"pairs": 0, "apart": 0}


def test_what_is_held_out_is_not_learned_from_though_it_comes_again(tmp_path: Path) -> None:
    given = documents(NAMED)
    again = [Document(f"again {row}", given[row].text, "train") for row in range(8)]
    store = build_store([*given, *again], SETTINGS, tmp_path / "store")
    assert splits(store) == dict(zip(WORDS, NAMED, strict=True))
    assert not learned(store) & set(WORDS[:8])


@pytest.mark.parametrize("last", [OTHER, "no test split"])
def test_splits_that_are_not_whole_are_not_used(tmp_path: Path, last: str | None) -> None:
    names: list[str | None] = [*NAMED[:-1], last]
    if last == "no test split":
        names = ["train" if name == "test" else name for name in NAMED]
    store = build_store(documents(names), SETTINGS, tmp_path / "store")
    plain = build_store(documents([None] * 40), SETTINGS, tmp_path / "plain")
    assert store.manifest["split_column"] == "not used"
    assert plain.manifest["split_column"] is None
    for name in ("test", "validation"):
        counts = [one.manifest["splits"][name]["documents"] for one in (store, plain)]
        assert abs(counts[0] - counts[1]) <= 2
    held_out = {name for name, split in splits(store).items() if split != "train"}
    assert held_out
    assert not learned(store) & (held_out | {word for word, name in zip(WORDS, names, strict=True) if name == "test"})


def test_near_duplicates_stay_where_the_source_has_them(tmp_path: Path) -> None:
    lexicon = ["".join(DRAWS.choices("abcdefghij", k=DRAWS.randint(2, 8))) for _ in range(900)]
    texts = [" ".join(DRAWS.choices(lexicon, k=1500)) for _ in range(3)]
    given = [Document(name, text, name) for name, text in zip(SPLITS, texts, strict=True)]
    store = build_store([*given, Document("again", texts[2] + " more", "train")], SETTINGS, tmp_path / "store")
    assert splits(store) == {name: name for name in SPLITS} | {"again": "train"}
    assert store.manifest["near_duplicates"] == {"pairs": 1, "apart": 1}
