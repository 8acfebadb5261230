"""The bytes of text that targets stand for, where tokens are bytes and where they are not."""

import math
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.store import Store
from extrapolate.data.tokenizer import token_bytes
from extrapolate.evaluation.lengths import evaluate
from extrapolate.evaluation.protocols.base import Windows
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import Targets
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run

L = 16
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
    assert token_bytes(store.tokenizer()) is None
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


def test_targets_of_several_documents_have_each_its_own(documents: list[Document], store: Store) -> None:
    """In the order of the targets, whichever windows they come from."""
    split = store.split("test")
    texts = {document.id: document.text for document in documents}
    mean_D = np.array([len(texts[d].encode()) / len(texts[d].split()) for d in split.ids])
    assert mean_D.max() > 2 * mean_D.min()
    groups = [Windows(np.array([2, 0]), np.array([8, 0]), 4, 2), Windows(np.array([1, 0]), np.array([0, 20]), 6, 3)]
    targets = Targets.of(groups, split, None)
    assert targets.document_N.tolist() == [0] * 5 + [1] * 3 + [2] * 2
    assert targets.bytes_N == pytest.approx(mean_D[targets.document_N])


def test_bits_per_byte_follow(documents: list[Document], store: Store, tmp_path: Path) -> None:
    sizes = {"width": 32, "layers": 1, "heads": 2, "head_dim": 16, "ff_width": 48}
    config, _ = resolve(TrainingRequest(pe="rope", model=sizes, training={"seq_len": L, "tokens": 8192}), store)
    run = Run.create(tmp_path / "run", config, (store.path / "tokenizer.json").read_bytes())
    run.save_weights(run.build_model(), 1, 8192, final=True)
    texts = {document.id: document.text for document in documents}
    ((row,), by_document, _) = next(evaluate(run, store, EvaluationSettings((1,), protocols=("windows",))))
    counts: dict[str, int] = {}
    for part in by_document:
        counts[part["document"]] = counts.get(part["document"], 0) + part["n_targets"]
    assert len(counts) == 3
    expected = sum(n * len(texts[d].encode()) / len(texts[d].split()) for d, n in counts.items())
    assert row["n_bytes"] == pytest.approx(expected)
    assert sum(part["n_bytes"] for part in by_document) == pytest.approx(expected)
    assert row["bits_per_byte"] == pytest.approx(row["loss"] * row["n_targets"] / math.log(2) / expected)


def test_a_lossy_tokenizer_has_no_bits_per_byte(documents: list[Document], store: Store, tmp_path: Path) -> None:
    """Every token is the unknown one: the loss is close to 0, and says nothing of the text."""
    lossy = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    lossy.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    lossy.save(str(tmp_path / "tokenizer.json"))
    settings = StoreSettings("words", tokenizer=str(tmp_path / "tokenizer.json"), min_heldout_tokens=200, dedup=False)
    assert store.lossless
    store = build_store(documents, settings, tmp_path / "store")
    assert not store.lossless
    sizes = {"width": 32, "layers": 1, "heads": 2, "head_dim": 16, "ff_width": 48}
    config, _ = resolve(TrainingRequest(pe="rope", model=sizes, training={"seq_len": L, "tokens": 8192}), store)
    run = Run.create(tmp_path / "run", config, (store.path / "tokenizer.json").read_bytes())
    run.save_weights(run.build_model(), 1, 8192, final=True)
    ((row,), by_document, _) = next(evaluate(run, store, EvaluationSettings((1,), protocols=("windows",))))
    assert row["loss"] > 0
    assert row["bits_per_byte"] is row["n_bytes"] is None
    assert {part["n_bytes"] for part in by_document} == {None}
