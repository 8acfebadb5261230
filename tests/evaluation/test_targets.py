"""Targets in one order, sums over groups of them, and the bytes of text that they stand for."""

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.shards import schema
from extrapolate.data.store import Split, Store
from extrapolate.data.tokenizer import token_bytes
from extrapolate.evaluation.lengths import evaluate
from extrapolate.evaluation.protocols.base import Windows, targets_hash
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import Targets, in_order, index_in_window, sums_by
from extrapolate.evaluation.work import work_of
from extrapolate.runs.run import Run

SHORT, LONG = ["a", "bé"], ["straßen", "longer-words"]


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """Texts of few bytes a token, and of many: their means differ."""
    rng = np.random.default_rng(0)
    return [Document(str(i), " ".join(rng.choice(LONG if i % 2 else SHORT, 200 + i))) for i in range(12)]


@pytest.fixture(scope="module")
def store(documents: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A token is a word, and the spaces between are in none: no token's bytes are known."""
    folder = tmp_path_factory.mktemp("words")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(SHORT + LONG)}, unk_token="a"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = StoreSettings("words", tokenizer=str(folder / "tokenizer.json"), min_heldout_tokens=200, dedup=False)
    return build_store(documents, settings, folder / "store")


def test_a_target_has_its_documents_mean_where_tokens_are_not_bytes(documents: list[Document], store: Store) -> None:
    """The end of a document is no text: all of its other tokens together stand for all of its bytes."""
    assert token_bytes(store.tokenizer(), store.manifest["eos_id"]) is None
    split = store.split("test")
    texts = {document.id: document.text for document in documents}
    assert len(split.ids) == 3
    for at, document in enumerate(split.ids):
        size, words = len(texts[document].encode()), len(texts[document].split())
        assert split.lengths[at] == words
        every = Windows(np.array([at]), np.array([-1]), words, words)  # targets 0 .. words - 1
        bytes_N = Targets.of([every], split, None).bytes_N
        assert bytes_N.tolist() == pytest.approx([size / words] * words)
        assert bytes_N.sum() == pytest.approx(size)


def only_row(run: Run, store: Store) -> tuple[dict, list[dict]]:
    ((row,), by_document, _) = next(evaluate(work_of(run, store, EvaluationSettings((1,), protocols=("windows",)))))
    return row, by_document


def test_bits_per_byte_follow(documents: list[Document], store: Store, random_run: Callable[..., Run]) -> None:
    texts = {document.id: document.text for document in documents}
    row, by_document = only_row(random_run(store), store)
    counts: dict[str, int] = defaultdict(int)
    for part in by_document:
        counts[part["document"]] += part["n_targets"]
    assert len(counts) == 3
    expected = sum(n * len(texts[d].encode()) / len(texts[d].split()) for d, n in counts.items())
    assert row["n_bytes"] == pytest.approx(expected)
    assert sum(part["n_bytes"] for part in by_document) == pytest.approx(expected)
    assert row["bits_per_byte"] == pytest.approx(row["loss"] * row["n_targets"] / math.log(2) / expected)


def test_a_lossy_tokenizer_has_no_bits_per_byte(documents: list[Document], store: Store, random_run, tmp_path) -> None:
    """Every token is the unknown one: the loss is close to 0, and says nothing of the text."""
    lossy = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    lossy.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    lossy.save(str(tmp_path / "tokenizer.json"))
    settings = StoreSettings("words", tokenizer=str(tmp_path / "tokenizer.json"), min_heldout_tokens=200, dedup=False)
    assert store.lossless
    store = build_store(documents, settings, tmp_path / "store")
    assert not store.lossless
    row, by_document = only_row(random_run(store), store)
    assert row["loss"] > 0
    assert row["bits_per_byte"] is row["n_bytes"] is None
    assert {part["n_bytes"] for part in by_document} == {None}


SIZES = (30, 12, 25)


@pytest.fixture(scope="module")
def split() -> Split:
    """Documents whose tokens count up over all of them; one has no more bytes than tokens, others have."""
    batches, first = [], 0
    for i, size in enumerate(SIZES):
        columns = [[f"d{i}"], [(i + 1) * size], [list(range(first, first + size + 1))]]
        batches.append(pa.record_batch(columns, schema=schema("uint16")))
        first += size + 1
    return Split("test", batches)


# Out of order, and of two kinds: documents 2, 0, 1, places that fall, and some places in two documents.
GROUPS = (
    Windows(np.array([2, 0, 0]), np.array([3, 9, 1]), 6, 2),
    Windows(np.array([1, 0]), np.array([4, 20]), 4, 3),
)


def by_hand() -> list[tuple[int, int, int]]:
    """Document, place, and index of the last input in the window, of every target."""
    found = []
    for group in GROUPS:
        for document, start in zip(group.document_W.tolist(), group.start_W.tolist(), strict=True):
            for index in range(group.length - group.scored, group.length):
                found.append((document, start + index + 1, index))
    return sorted(found)


def test_targets_come_by_document_and_place(split: Split) -> None:
    targets = Targets.of(GROUPS, split, None)
    assert list(zip(targets.document_N, targets.place_N, strict=True)) == [(d, p) for d, p, _ in by_hand()]
    assert index_in_window(GROUPS).tolist() == [index for *_, index in by_hand()]


def test_values_come_in_the_order_of_targets() -> None:
    values = [group.targets() @ np.array([1000, 1]) for group in GROUPS]
    assert in_order(GROUPS, values).tolist() == [1000 * d + p for d, p, _ in by_hand()]


def test_bytes_are_every_tokens_own_where_they_are_known(split: Split) -> None:
    bytes_of = np.arange(100) ** 2
    targets = Targets.of(GROUPS, split, bytes_of)
    firsts = np.cumsum([0, *(size + 1 for size in SIZES)])
    assert targets.bytes_N.tolist() == [float((firsts[d] + p) ** 2) for d, p, _ in by_hand()]
    assert targets.bytes_N.dtype == np.float64


def test_bytes_are_the_documents_means_where_they_are_not(split: Split) -> None:
    assert Targets.of(GROUPS, split, None).bytes_N.tolist() == [d + 1 for d, *_ in by_hand()]


def test_sums_are_over_targets_that_agree_in_every_key() -> None:
    rng = np.random.default_rng(0)
    keys = [rng.integers(0, top, 200) for top in (3, 11, 2)]
    values = {"a": rng.normal(size=200), "b": rng.integers(0, 9, 200)}
    sums: dict[tuple[int, ...], np.ndarray] = defaultdict(lambda: np.zeros(3))
    for n in range(200):
        sums[tuple(int(key[n]) for key in keys)] += (values["a"][n], values["b"][n], 1)
    found = sums_by(keys, values)
    assert set(found) == {"a", "b", "n_targets", "key 0", "key 1", "key 2"}
    assert len(found["a"]) == len(sums)
    for i, key in enumerate(zip(found["key 0"], found["key 1"], found["key 2"], strict=True)):
        assert (found["a"][i], found["b"][i], found["n_targets"][i]) == pytest.approx(sums[key])


def test_the_hash_is_of_the_targets_and_not_of_their_windows() -> None:
    """The same targets from windows in another order, in other groups, of another length, have the same hash."""
    base = targets_hash(GROUPS, "c", "test")
    turned = tuple(Windows(g.document_W[::-1], g.start_W[::-1], g.length, g.scored) for g in reversed(GROUPS))
    longer = tuple(Windows(g.document_W, g.start_W - 7, g.length + 7, g.scored) for g in GROUPS)
    single = [Windows(g.document_W, g.start_W + i, g.length - g.scored + 1, 1) for g in GROUPS for i in range(g.scored)]
    assert [targets_hash(groups, "c", "test") for groups in (turned, longer, single)] == [base] * 3
    assert targets_hash(GROUPS[:1], "c", "test") != base
    assert len(base) == 16
