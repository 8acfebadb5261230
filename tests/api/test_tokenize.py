"""What `xt.tokenize` says of a store, and whether one that is there was made from the same."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.data.tokenizer import train_bpe
from extrapolate.progress import Quiet


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of ten texts, in the current folder."""
    monkeypatch.chdir(tmp_path)
    draws = random.Random(0)
    (tmp_path / "texts").mkdir()
    for number in range(10):
        words = ["".join(draws.choices("abcdefgh", k=draws.randint(1, 7))) for _ in range(200)]
        (tmp_path / "texts" / f"{number}.txt").write_text(" ".join(words))
    return tmp_path / "texts"


class Said(Quiet):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def tokenized(source: str = "texts", **settings: object) -> tuple[Store, str]:
    """The store, and what was said."""
    said = Said()
    settings = {"vocab_size": 270, "min_heldout_tokens": 100} | settings
    store = xt.tokenize(source, "store", progress=said, **settings)  # type: ignore[arg-type]
    return store, "\n".join(said.lines)


def unknown() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def without_spaces() -> Tokenizer:
    tokenizer = train_bpe(["abcdefgh " * 100], 257)
    tokenizer.normalizer = normalizers.Replace(" ", "")
    return tokenizer


def with_a_prefix() -> Tokenizer:
    """As Llama's: what it changes before, its decoder changes back."""
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate("abcdefgh▁")}, []))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


@pytest.mark.parametrize("made", [unknown, without_spaces, with_a_prefix, None])
def test_a_lossy_tokenizer_is_found(made: Callable[[], Tokenizer] | None, texts: Path) -> None:
    if made is not None:
        made().save("tokenizer.json")
    store, said = tokenized(tokenizer=None if made is None else "tokenizer.json")
    documents = sum(len(store.split(name).ids) for name in ("test", "validation"))
    lossy = made in (unknown, without_spaces)
    assert store.manifest["round_trip"] == {"documents": documents, "changed": documents if lossy else 0}
    assert store.lossless is not lossy
    assert ("warning: the tokenizer is lossy: decoding gives another text for" in said) is lossy
