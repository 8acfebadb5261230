"""The passages of a text and a MinHash sketch of each, which show how much two texts have in common.

A text is cut into passages at certain words, not after a fixed number of them, so text inserted before a passage does
not move its ends: a chapter has the same passages in another book, except for its first and last. MinHash (rensa)
recognises passages that differ in a few words, as in two editions.
"""

import re

import numpy as np
import rensa

WORDS = 5  # in a shingle; a passage is a set of shingles
MEAN, LEAST = 128, 32  # words of a passage, a power of 2; passages shorter than LEAST are left out
SLOTS, SEED = 16, 1  # of sketches
# `row`: the document's index; `words`: in this passage; `total`: in all passages of its document.
PASSAGE = np.dtype([("row", "<i8"), ("words", "<u4"), ("total", "<u4"), ("sketch", "<u4", SLOTS)])

# Changes if texts are cut or sketched differently: such sketches must not be compared.
SKETCH = {"format": 1, "rensa": rensa.RMinHash.ALGORITHM_VERSION}

_BLOCK = 2**16  # bytes at a time
# Words consist of letters and digits (ASCII in lower case), and anything else outside ASCII but quotes and dashes.
_LETTERS = bytes(byte if byte >= 0x80 or chr(byte).isalnum() else 0x20 for byte in bytes(range(256)).lower())
_PUNCTUATION = {lead: re.compile(lead + rb"[\x80-\xbf]") for lead in (b"\xc2", b"\xe2\x80", b"\xe3\x80", b"\xef\xbc")}

_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def _powers(base: int) -> np.ndarray:
    """1, base, base^2, ..., modulo 2^64, uint64 [_BLOCK + 1]."""
    return np.cumprod(np.r_[np.uint64(1), np.full(_BLOCK, base, np.uint64)])


_POWERS, _INVERSES = _powers(_BASE), _powers(_INVERSE)


def passages(content: bytes) -> np.ndarray:
    """The passages of a UTF-8 text, as PASSAGE, with `row` still to be filled in."""
    for lead, punctuation in _PUNCTUATION.items():
        if lead in content:
            content = punctuation.sub(b" ", content)
    content = content.translate(_LETTERS)
    found = np.concatenate([_of_block(content[at : at + _BLOCK]) for at in range(0, max(1, len(content)), _BLOCK)])
    found["total"] = found["words"].sum()
    return found


def _of_block(content: bytes) -> np.ndarray:
    """The passages of a piece of text whose words are separated by spaces: PASSAGE [passages]."""
    shingles = _shingles(content)
    cuts = np.flatnonzero((shingles & np.uint64(MEAN - 1)) == 0)
    sizes = np.diff(np.r_[0, cuts, len(shingles)])
    long = np.flatnonzero(sizes >= LEAST)
    if not len(long):
        return np.zeros(0, PASSAGE)
    kept = shingles[np.repeat(sizes >= LEAST, sizes)]
    offsets = np.r_[0, np.cumsum(sizes[long])].astype(np.uint64)
    sketches = rensa.RMinHash.digest_matrix_from_flat_token_hashes(kept, offsets, SLOTS, SEED)
    found = np.zeros(len(long), PASSAGE)
    found["words"], found["sketch"] = sizes[long], sketches.to_rows()
    return found


def _shingles(content: bytes) -> np.ndarray:
    """A hash of every run of WORDS words, in order, uint64.

    It is a polynomial of the letters modulo 2^64: the difference of two sums from the beginning of the content.
    """
    letters = np.frombuffer(b" " + content + b" ", np.uint8)
    spaces = letters == 0x20
    letters = letters[1:][~(spaces[1:] & spaces[:-1])]  # one space after each word
    ends = np.flatnonzero(letters == 0x20) + 1
    starts = np.r_[0, ends[:-1]]
    if len(ends) < WORDS:
        return np.zeros(0, np.uint64)
    sums = np.r_[np.uint64(0), np.cumsum(letters * _POWERS[: len(letters)])]
    first, last = starts[: len(ends) - WORDS + 1], ends[WORDS - 1 :]
    hashes = (sums[last] - sums[first]) * _INVERSES[first]
    hashes ^= hashes >> np.uint64(32)
    hashes *= _MIX
    return hashes ^ (hashes >> np.uint64(29))
