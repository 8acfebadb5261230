"""The words of a text: pieces that a byte-level BPE of GPT-2's kind never looks beyond."""

import re
from collections.abc import Iterator

# What the regular expressions of tokenizers take for white space, which is less than Python does.
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WORD = re.compile(rf" ?[^{_SPACE}]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]")
_LONG = 500  # characters
_PART = re.compile(rf"[^{_SPACE}]+|[{_SPACE}]+")
_BETWEEN = re.compile(rf"(?<=[^{_SPACE}])[{_SPACE}]")


def words(text: str) -> list[str]:
    """The words of a text, each with the space before it; joined they are the text.

    It is the pattern of GPT-2's pre-tokenizer, whose letters, numbers and other signs are not told apart.
    """
    return _WORD.findall(text)


def blocks(text: str, characters: int) -> Iterator[str]:
    """Pieces of a text of about so many characters. Each begins with white space, where a word ends."""
    start = 0
    while (found := _BETWEEN.search(text, start + characters)) is not None:
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def without_long_words(text: str) -> Iterator[str]:
    """Pieces of a text, cut within long words, so that none has a word of more than 2 _LONG characters.

    Words of up to _LONG characters are never cut. Longer runs of white space are words too.
    """
    start = 0
    for end in range(_LONG, len(text) + 1, _LONG):
        if _PART.fullmatch(text, end - _LONG, end):
            yield text[start:end]
            start = end
    yield text[start:]
