"""Words and blocks: pieces of a text whose tokens are those of the whole."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from extrapolate.data.tokenizer import blocks, train_bpe, without_long_words, words

# All that regular expressions have ever taken for white space, and what stands beside it in the pattern.
SPACES = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
TEXT = st.text(st.sampled_from(SPACES + "  \n\nab1٣é'’s-…字🙂\u0301")) | st.text(
    st.characters(exclude_categories=["Cs"])
)


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    letters = random.Random(0)
    return train_bpe(["".join(letters.choices("ab \n's1é-", k=3000))], 400)


@settings(deadline=None)  # a machine with other work is slow
@given(TEXT)
def test_the_tokens_of_words_are_those_of_the_text(trained: Tokenizer, text: str) -> None:
    found = words(text)
    assert "".join(found) == text
    assert [token for word in found for token in trained.encode(word).ids] == trained.encode(text).ids


@settings(deadline=None)  # a machine with other work is slow
@given(TEXT, st.integers(1, 5))
def test_the_words_of_blocks_are_those_of_the_text(text: str, characters: int) -> None:
    pieces = list(blocks(text, characters))
    assert "".join(pieces) == text
    assert [word for piece in pieces for word in words(piece)] == words(text)


@settings(deadline=None)  # a machine with other work is slow
@given(st.lists(st.tuples(st.sampled_from(["a", "字", " ", "\n\t"]), st.integers(1, 1800)), max_size=6))
def test_long_words_are_cut_and_others_are_not(parts: list[tuple[str, int]]) -> None:
    text = "".join((letter * count)[:count] for letter, count in parts)
    pieces = list(without_long_words(text))
    assert "".join(pieces) == text
    runs = [len(run) for piece in pieces for run in re.findall(r"\S+|\s+", piece)]
    assert max(runs, default=0) <= 1000
    cuts = {len("".join(pieces[:at])) for at in range(1, len(pieces))} - {len(text)}
    for run in re.finditer(r"\S+|\s+", text):
        if len(run.group()) < 500:
            assert not any(run.start() < cut < run.end() for cut in cuts)
