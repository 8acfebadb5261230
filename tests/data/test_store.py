"""The token store: what goes in comes out, in the right split, whole or not at all."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from extrapolate.data import build as building
from extrapolate.data import shards
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.sources import open_source
from extrapolate.data.store import SPLITS, Split, Store
from extrapolate.errors import UserError

WORDS = [a + b for a in ("ba", "ke", "ño", "ti", "zü", "ra") for b in ("lo", "mi", "se", "du", "ç")]


def make_documents(lengths: list[int], seed: int = 0) -> list[Document]:
    """Documents of so many words, all different."""
    chooser = random.Random(seed)
    return [
        Document(f"document-{row}", f"{row}: " + " ".join(chooser.choices(WORDS, k=length)))
        for row, length in enumerate(lengths)
    ]


DOCUMENTS = make_documents(random.Random(1).choices(range(1, 60), k=80))
SETTINGS = StoreSettings(source="made up", vocab_size=300, min_heldout_tokens=40)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store in many small pieces: batches of documents, record batches, files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "BATCH_CHARACTERS", 1000)
        patch.setattr(shards, "BATCH_TOKENS", 250)
        patch.setattr(shards, "SHARD_TOKENS", 600)
        return build_store(DOCUMENTS, SETTINGS, tmp_path_factory.mktemp("stores") / "small")


def build(folder: Path, documents: list[Document] = DOCUMENTS, **changed: Any) -> Store:
    return build_store(documents, replace(SETTINGS, **changed), folder / "store")


def encoded(store: Store, text: str) -> list[int]:
    """A text's tokens, from the tokenizer alone."""
    tokenizer = store.tokenizer()
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(text, add_special_tokens=False).ids


def stream(split: Split) -> np.ndarray:
    return split.slice(0, split.n_tokens)


@pytest.fixture(scope="module")
def expected_stream(store: Store) -> list[int]:
    """The training stream from the texts and the tokenizer alone: no slice, no shard."""
    kept = set(store.split("train").ids)
    eos = store.manifest["eos_id"]
    return [token for d in DOCUMENTS if d.id in kept for token in [*encoded(store, d.text), eos]]


def contents(store: Store) -> dict[str, list[int]]:
    """Every document's tokens, by id, over all splits."""
    return {
        document: split.slice(start, end).tolist()
        for split in map(store.split, SPLITS)
        for document, start, end in zip(split.ids, split.offsets[:-1], split.offsets[1:], strict=True)
    }


def ids(store: Store) -> dict[str, set[str]]:
    return {name: set(store.split(name).ids) for name in SPLITS}


def word_tokenizer(path: Path, vocabulary: dict[str, int]) -> str:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path))
    return str(path)


class TestContent:
    def test_every_document_is_whole_in_one_split(self, store: Store) -> None:
        names = [name for split in SPLITS for name in store.split(split).ids]
        assert sorted(names) == sorted(document.id for document in DOCUMENTS)
        expected = {d.id: [*encoded(store, d.text), store.manifest["eos_id"]] for d in DOCUMENTS}
        assert contents(store) == expected

    def test_counts_are_those_of_the_documents(self, store: Store) -> None:
        texts = {document.id: document.text for document in DOCUMENTS}
        for name in SPLITS:
            split, counted = store.split(name), store.manifest["splits"][name]
            assert split.bytes.tolist() == [len(texts[one].encode()) for one in split.ids]
            assert split.lengths.tolist() == [len(encoded(store, texts[one])) for one in split.ids]
            assert counted["documents"] == len(split.ids)
            assert counted["tokens"] == split.n_tokens == int(split.lengths.sum()) + len(split.ids)
            assert counted["bytes"] == int(split.bytes.sum())
            assert counted["longest_document"] == int(split.lengths.max())
        assert store.manifest["settings"] == vars(SETTINGS)
        assert store.manifest["source"] == "made up"
        assert store.vocab_size == 300

    def test_repeated_and_empty_documents_are_left_out(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(building, "BATCH_CHARACTERS", 1)  # across batches too
        repeated = [Document(f"again-{d.id}", d.text) for d in DOCUMENTS[:5]]
        other = build(tmp_path, [*DOCUMENTS, Document("empty", ""), *repeated])
        # The tokenizer saw the repeated text as well, so only the ids can be compared.
        assert set(contents(other)) == set(contents(store))


class TestPieces:
    def test_pieces_make_no_difference(self, store: Store, tmp_path: Path) -> None:
        whole = build(tmp_path)
        assert whole.corpus_hash == store.corpus_hash
        for name in SPLITS:
            assert len(whole.manifest["splits"][name]["shards"]) == (2 if name == "train" else 1)
            assert whole.split(name).ids == store.split(name).ids
            np.testing.assert_array_equal(stream(whole.split(name)), stream(store.split(name)))

    @settings(deadline=None)  # a machine with other work is slow
    @given(st.data())
    def test_a_slice_is_that_of_the_concatenation(
        self, store: Store, expected_stream: list[int], data: st.DataObject
    ) -> None:
        split = store.split("train")
        start = data.draw(st.integers(0, split.n_tokens), label="start")
        end = data.draw(st.integers(start, split.n_tokens), label="end")
        np.testing.assert_array_equal(split.slice(start, end), expected_stream[start:end])


class TestTypes:
    @pytest.mark.parametrize(("largest", "dtype"), [(2**16 - 1, "uint16"), (2**16, "uint32")])
    def test_the_largest_id_decides(self, tmp_path: Path, largest: int, dtype: str) -> None:
        # Ids without gaps below 4, and <eos> at 4: the largest is far from the number of tokens.
        path = word_tokenizer(tmp_path / "t.json", {"a": 0, "b": 1, "c": 2, "d": 3, "</s>": 4, "far": largest})
        documents = [Document(str(i), " ".join(["far", *"abcd"[:i], "far"])) for i in range(4)]
        store = build(tmp_path, documents, tokenizer=path, min_heldout_tokens=1)
        assert store.vocab_size == largest + 1
        assert store.manifest["dtype"] == dtype
        assert contents(store)["1"] == [largest, 0, largest, 4]
        assert stream(store.split("train")).dtype == np.dtype(dtype)


class TestLimits:
    @pytest.mark.parametrize(("spare", "documents"), [(0, 30), (-1, 29), (1, 30)])
    def test_max_tokens_stops_before_the_document_that_passes_it(
        self, store: Store, tmp_path: Path, spare: int, documents: int
    ) -> None:
        limit = sum(len(encoded(store, document.text)) + 1 for document in DOCUMENTS[:30]) + spare
        assert set(contents(build(tmp_path, max_tokens=limit))) == {document.id for document in DOCUMENTS[:documents]}

    def test_min_doc_tokens_leaves_out_the_shorter(self, store: Store, tmp_path: Path) -> None:
        sizes = {document.id: len(encoded(store, document.text)) for document in DOCUMENTS}
        limit = sorted(sizes.values())[30]
        kept = contents(build(tmp_path, min_doc_tokens=limit))
        assert set(kept) == {name for name, size in sizes.items() if size >= limit}

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"max_tokens": 1}, r"holds no document .*`max_tokens=1`"),
            ({"min_doc_tokens": 10_000}, "made up holds no document of at least 10000 tokens"),
            ({"min_heldout_tokens": 8193}, r"0 of 80 documents have at least 8193.*lower `min_heldout_tokens`"),
        ],
    )
    def test_limits_that_leave_too_few_are_refused(self, tmp_path: Path, settings: dict[str, int], said: str) -> None:
        with pytest.raises(UserError, match=said):
            build(tmp_path, **settings)


class TestCorpusHash:
    def test_it_does_not_say_where_the_store_or_the_source_is(self, tmp_path: Path) -> None:
        hashes = []
        for place in (tmp_path / "here", tmp_path / "there"):
            (place / "texts").mkdir(parents=True)
            for document in DOCUMENTS:
                (place / "texts" / f"{document.id}.txt").write_text(document.text, encoding="utf-8")
            source = str(place / "texts")
            settings = replace(SETTINGS, source=source)
            hashes.append(build_store(open_source(source), settings, place / "store").corpus_hash)
        assert hashes[0] == hashes[1]

    @pytest.mark.parametrize("changed", ["text", "min_heldout_tokens", "order"])
    def test_it_changes_with_what_is_in_the_store(self, store: Store, tmp_path: Path, changed: str) -> None:
        documents = list(DOCUMENTS)
        if changed == "text":
            documents[7] = Document(documents[7].id, documents[7].text + "!")
        elif changed == "order":
            documents[7], documents[8] = documents[8], documents[7]
        other = build(tmp_path, documents, min_heldout_tokens=60 if changed == "min_heldout_tokens" else 40)
        assert other.corpus_hash != store.corpus_hash
