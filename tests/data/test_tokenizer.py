"""Byte-level BPE: exact sizes, exact bytes, the same every time."""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from extrapolate.data.special_tokens import EOS, find
from extrapolate.data.tokenizer import SMALLEST_VOCAB, encode, load, read, token_bytes, train_bpe
from extrapolate.errors import UserError

# Spelled with what the training text has and with what it has not: other scripts, emoji joined of several, controls.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.text("aeé ß\n\t🙂<os>", max_size=60)


def made_up_text(seed: int = 0, words: int = 3000) -> str:
    chooser = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "é", "ö")]
    return " ".join("".join(chooser.choices(syllables, k=chooser.randint(1, 3))) for _ in range(words))


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return train_bpe([made_up_text()], 400)


def save(tokenizer: Tokenizer, path: Path) -> str:
    tokenizer.save(str(path))
    return str(path)


class TestTraining:
    @pytest.mark.parametrize("size", [SMALLEST_VOCAB, 258, 512])
    def test_the_vocabulary_has_exactly_the_size_asked(self, size: int) -> None:
        tokenizer = train_bpe([made_up_text()], size)
        assert sorted(tokenizer.get_vocab().values()) == list(range(size))
        assert find(tokenizer).eos == (tokenizer.token_to_id("<eos>"),)
        assert len(tokenizer.encode("naïve 🙂").ids) == 11 or size > SMALLEST_VOCAB  # a token each byte

    def test_a_size_the_text_cannot_yield_is_refused_with_one_it_can(self) -> None:
        text = "one two three " * 5
        with pytest.raises(ValueError, match=r"too little for a vocabulary of 5000.*use `vocab_size=\d+`") as caught:
            train_bpe([text], 5000)
        advice = int(str(caught.value).split("vocab_size=")[1].split("`")[0])
        assert train_bpe([text], advice).get_vocab_size() == advice

    def test_text_without_spaces_is_cut(self) -> None:
        """Learning from one word takes time that is quadratic in its length: hours for this text."""
        letters = "".join(random.Random(0).choices("acgt", k=200_000))
        assert train_bpe([letters], 300).get_vocab_size() == 300
        assert 256 <= max(map(len, train_bpe(["a" * 5000], 267).get_vocab())) <= 500  # 1024 without cuts

    def test_processes_with_other_threads_agree(self) -> None:
        # Counts are gathered by threads, and ties must not fall to whoever is first, nor to a hash's random seed.
        program = (
            "import hashlib, sys; from extrapolate.data.tokenizer import train_bpe\n"
            "texts = sys.stdin.read().split('|')\n"
            "print(hashlib.sha256(train_bpe(texts, 320).to_str().encode()).hexdigest())"
        )
        texts = [made_up_text(seed, 100) for seed in range(20)]
        expected = hashlib.sha256(train_bpe(texts, 320).to_str().encode()).hexdigest()
        result = subprocess.run(
            [sys.executable, "-X", "utf8", "-c", program],
            input="|".join(texts), capture_output=True, encoding="utf-8", check=True,
            env={**os.environ, "RAYON_NUM_THREADS": "1"},
        )  # fmt: skip
        assert result.stdout.strip() == expected


@settings(deadline=None)  # a machine with other work is slow
@given(TEXT)
def test_tokens_spell_the_text_again_and_their_bytes_add_up_to_it(trained: Tokenizer, text: str) -> None:
    trained.encode_special_tokens = True
    tokens, sizes = trained.encode(text).ids, token_bytes(trained, 0)
    assert trained.decode(tokens, skip_special_tokens=False) == text
    assert sizes is not None
    assert int(sizes[tokens].sum()) == len(text.encode())


class TestTokenBytes:
    def test_tokens_that_are_not_bytes_of_the_text_have_none(self) -> None:
        """Nor those of a text with a space in front, or of another spelling."""
        in_front = pre_tokenizers.ByteLevel(add_prefix_space=True)
        for name, value in (
            ("normalizer", normalizers.Lowercase()),
            ("pre_tokenizer", in_front),
            ("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.Digits(), in_front])),
            ("decoder", decoders.WordPiece()),
        ):
            changed = train_bpe(["a b"], SMALLEST_VOCAB)
            setattr(changed, name, value)
            assert token_bytes(changed, 0) is None
        assert token_bytes(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")), 0) is None

    def test_added_tokens_that_are_text_count_their_bytes(self, tmp_path: Path) -> None:
        # GPT-NeoX's tokenizer has runs of spaces as added, not special, tokens: they stand for text.
        tokenizer = train_bpe([made_up_text()], 300)
        tokenizer.add_tokens([AddedToken("    ", normalized=False), AddedToken("é__é", normalized=False)])
        tokenizer = load(save(tokenizer, tmp_path / "tokenizer.json"))[0]
        tokenizer.encode_special_tokens = True
        text = "if x:\n        é__é bada"
        encoding = tokenizer.encode(text)
        assert "    " in encoding.tokens
        assert "é__é" in encoding.tokens
        sizes = token_bytes(tokenizer, 0)
        assert sizes is not None
        assert int(sizes[encoding.ids].sum()) == len(text.encode())

    def test_a_special_token_that_text_spells_counts_its_bytes(self, tmp_path: Path) -> None:
        tokenizer = train_bpe(["bada bada bada"], 261)
        assert "bada" in tokenizer.get_vocab()
        tokenizer.add_special_tokens(["bada"])
        tokenizer = load(save(tokenizer, tmp_path / "tokenizer.json"))[0]
        tokenizer.encode_special_tokens = True
        encoding, sizes = tokenizer.encode("bada x"), token_bytes(tokenizer, 0)
        assert "bada" in encoding.tokens
        assert sizes is not None
        assert int(sizes[encoding.ids].sum()) == 6


class TestLoading:
    def test_nothing_is_added_to_a_text(self, trained: Tokenizer, tmp_path: Path) -> None:
        adding = Tokenizer.from_str(trained.to_str())
        adding.post_processor = processors.TemplateProcessing("<eos> $A", special_tokens=[("<eos>", 0)])
        adding.enable_truncation(4)
        loaded = load(save(adding, tmp_path / "t.json"))[0]
        assert loaded.encode("a bada").ids == trained.encode("a bada").ids

    def test_dropout_is_refused(self, trained: Tokenizer, tmp_path: Path) -> None:
        dropping = Tokenizer.from_str(trained.to_str())
        dropping.model.dropout = 0.1
        with pytest.raises(UserError, match="has dropout, so a text's tokens differ each time"):
            load(save(dropping, tmp_path / "t.json"))

    @pytest.mark.parametrize("content", [None, b"{", b'{"model": 3}'])
    def test_what_is_no_tokenizer_is_refused(self, tmp_path: Path, content: bytes | None) -> None:
        path = tmp_path / "t.json"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match=r"the tokenizer .*t\.json cannot be read"):
            load(str(path))
        with pytest.raises(ValueError, match=r"t\.json is damaged"):
            read(path)

    def test_an_id_that_no_table_can_hold_is_refused(self, tmp_path: Path) -> None:
        path, largest = str(tmp_path / "t.json"), 2**24
        model = {"type": "WordLevel", "vocab": {"a": 0, EOS: largest}, "unk_token": "a"}
        Path(path).write_text(json.dumps({"version": "1.0", "model": model}))
        said = f"a token has the id {largest}, and ids must be below 16777216"
        with pytest.raises(UserError, match=f"cannot be read: {said}"):
            load(path)
        with pytest.raises(UserError, match=f"is damaged: {said}"):
            read(Path(path))

    def test_a_failure_of_the_library_that_is_no_exception_is_refused(self) -> None:
        def panic(*_: object, **__: object) -> None:
            raise type("PanicException", (BaseException,), {})("index out of bounds")  # nobody can import the real one

        said = "cannot encode the text: the tokenizers library failed: index out of bounds"
        with pytest.raises(UserError, match=said):
            encode(SimpleNamespace(encode_batch_fast=panic), ["text"])
