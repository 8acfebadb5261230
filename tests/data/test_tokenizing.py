"""Texts as tokens: the same from one process and from several, in order, and a few at a time."""

import json
import os
import random
import signal

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from extrapolate.data import tokenizing
from extrapolate.data.documents import Document
from extrapolate.data.tokenizer import train_bpe
from extrapolate.data.tokenizing import Encoder, encoded, splits_into_words
from extrapolate.errors import UserError
from extrapolate.machine.children import Child

DRAWS = random.Random(0)
DOCUMENTS = [Document(str(n), "".join(DRAWS.choices("abcd'  \n.é", k=n * 7 % 300))) for n in range(200)]
BATCHES = [DOCUMENTS[n : n + 5] for n in range(0, 200, 5)]


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    tokenizer = train_bpe([document.text for document in DOCUMENTS], 300)
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a source is, processes encode it."""
    monkeypatch.setattr(tokenizing, "SMALL_CHARACTERS", 0)


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    return [*tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.token_to_id("<eos>")]


class TestEncoder:
    @pytest.mark.parametrize(("dtype", "kept"), [("uint16", 2**20), ("uint32", 2**20), ("uint16", 20)])
    def test_it_gives_the_tokens_of_the_whole_text(self, trained: Tokenizer, dtype: str, kept: int) -> None:
        """However few words it remembers."""
        encoder = Encoder(trained, 0, dtype, kept)
        for document in DOCUMENTS:
            assert np.frombuffer(encoder(document.text), dtype).tolist() == whole(trained, document.text)

    def test_a_document_that_spells_the_end_of_text_is_refused_if_that_ends_it(self) -> None:
        tokenizer = train_bpe(["a b"], 257)
        text = "a <eos> b"
        assert len(Encoder(tokenizer, 0, "uint16")(text)) == 2 * (len(text) + 1)  # it is special, and so text like any
        settings = json.loads(tokenizer.to_str())
        settings["added_tokens"][0]["special"] = False
        ending = Encoder(Tokenizer.from_str(json.dumps(settings)), 0, "uint16")
        assert len(ending("a b")) == 2 * 4
        with pytest.raises(UserError, match="spells the tokenizer's end-of-text token, <eos>, which would end it"):
            ending(text)

    def test_other_tokenizers_encode_whole_documents(self) -> None:
        other = train_bpe(["a b"], 257)
        assert splits_into_words(other)
        other.add_tokens([AddedToken("b a", special=False)])
        assert not splits_into_words(other)
        assert len(Encoder(other, 0, "uint16")("a b a b")) == 2 * 6  # "a", " ", "b a", " ", "b", and the end
        for name, value in (
            ("normalizer", normalizers.NFC()),
            ("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
            ("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
            ("pre_tokenizer", pre_tokenizers.Whitespace()),
            ("model", models.WordLevel({"a": 0}, unk_token="a")),
            ("model", models.BPE(dropout=0.1)),
        ):
            changed = train_bpe(["a b"], 257)
            setattr(changed, name, value)
            assert not splits_into_words(changed), value


def test_a_small_source_starts_no_process(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "Child", None)
    assert len(list(encoded(BATCHES, trained, 0, "uint16", 2))) == len(DOCUMENTS)


@pytest.mark.usefixtures("several")
class TestProcesses:
    def test_the_order_and_the_tokens_are_those_of_one_process(self, trained: Tokenizer) -> None:
        found = list(encoded(iter(BATCHES), trained, 0, "uint16", 3, sketched=True))
        assert [document.id for document, _ in found] == [document.id for document in DOCUMENTS]
        encoder = Encoder(trained, 0, "uint16")
        assert [one for _, one in found] == [tokenizing.Encoded.of(d.text, encoder, sketched=True) for d in DOCUMENTS]

    def test_few_batches_are_in_memory_at_a_time(self, trained: Tokenizer) -> None:
        taken: list[list[Document]] = []
        batches = (taken.append(batch) or batch for batch in BATCHES)
        done = encoded(batches, trained, 0, "uint16", 2)
        most = max(len(taken) - int(document.id) // 5 for document, _ in done)
        assert most == 4  # two with each of the processes, of which one waits

    def test_one_that_is_killed_ends_all_with_a_message(
        self, trained: Tokenizer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[Child] = []

        class Watched(Child):
            def __init__(self, *arguments: object, **named: object) -> None:
                super().__init__(*arguments, **named)
                started.append(self)

        monkeypatch.setattr(tokenizing, "Child", Watched)
        done = encoded(iter(BATCHES), trained, 0, "uint16", 2)
        next(done)
        os.kill(started[0]._process.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=r"ended by itself \(SIGKILL\).*same command again"):
            list(done)
        assert [child._process.poll() for child in started] == [-signal.SIGKILL] * 2
