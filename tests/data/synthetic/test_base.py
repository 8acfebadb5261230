"""The store that text with a known optimum makes, and what is refused."""

from pathlib import Path

import pytest

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.sources import open_source
from extrapolate.data.store import Store
from extrapolate.data.synthetic.base import Process, parse_process
from extrapolate.data.tokenizer import token_bytes


@pytest.mark.parametrize("spec", ["markov:states=5,documents=40,length=300", "echo:states=16,documents=40,length=300"])
def test_a_store_has_a_token_for_every_state(spec: str, tmp_path: Path) -> None:
    source = open_source(f"synthetic:{spec}")
    assert isinstance(source, Process)
    store = build_store(source, StoreSettings(source=f"synthetic:{spec}"), tmp_path / "store")
    assert store.vocab_size == source.states + 1
    drawn = {document.id: document.text for document in source}
    assert len(set(drawn.values())) == 40
    alphabet = sorted({letter for text in drawn.values() for letter in text})
    for name in ("train", "validation", "test"):
        split = store.split(name)
        assert len(split.ids) > 0
        assert split.lengths.tolist() == [300] * len(split.ids)
        for row, key in enumerate(split.ids):
            tokens = split.slice(split.offsets[row], split.offsets[row + 1]).tolist()
            assert tokens == [*(alphabet.index(letter) for letter in drawn[key]), source.states]
    # A token is a byte all the same: documents' means are exact.
    assert token_bytes(store.tokenizer(), store.manifest["eos_id"]) is None
    assert Store.open(tmp_path / "store").corpus_hash == store.corpus_hash


def test_one_seed_one_text() -> None:
    texts = {seed: [d.text for d in parse_process(f"markov:documents=3,length=20,seed={seed}")] for seed in (0, 1)}
    assert texts[0] == [d.text for d in parse_process("markov:documents=3,length=20")]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("markof", "did you mean 'markov'"),
        ("markov:states=1", "2 to 62 states"),
        ("echo:noise=1", "between 0 and 1"),
        ("echo:longest=2000", "< length"),
    ],
)
def test_what_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_source(f"synthetic:{spec}")


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    spec = "synthetic:markov:documents=8,length=20"
    with pytest.raises(ValueError, match="leave `tokenizer` out"):
        build_store(open_source(spec), StoreSettings(source=spec, tokenizer="other.json"), tmp_path / "store")
