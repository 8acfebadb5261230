"""What the tokenizer learns from, and what is kept from it."""

import hashlib

import numpy as np
import pytest

from extrapolate.data.documents import Document
from extrapolate.data.heldout import Learning


def documents(sizes: list[int]) -> list[Document]:
    """Documents of so many characters, all different, each of which has two bytes."""
    return [Document(str(row), f"{chr(0x400 + row)}{'é' * (size - 1)}") for row, size in enumerate(sizes)]


def learned(sizes: list[int], characters: int = 10**6) -> tuple[list[int], list[int]]:
    """The rows that are learned from, and those that are kept, of documents of 20 bytes or more."""
    source = documents(sizes)
    learning = Learning.of(source, 20, characters, lambda size: None)
    texts = list(learning.texts(source, lambda size: None))
    rows = [row for row, document in enumerate(source[: learning.documents]) if document.text in texts]
    return rows, sorted(set(range(learning.documents)) - set(rows))


@pytest.mark.parametrize(
    ("long", "short", "kept"),
    [(3, 0, 2), (4, 0, 2), (2, 1, 2), (5, 0, 3), (40, 7, 20), (0, 3, 0), (1, 0, 0), (2, 0, 1)],
)
def test_half_of_the_long_by_hash_are_kept(long: int, short: int, kept: int) -> None:
    sizes = [9] * short + [10] * long
    digests = [hashlib.sha256(document.text.encode()).digest() for document in documents(sizes)]
    rows, others = learned(sizes)
    assert others == sorted(sorted(range(short, long + short), key=digests.__getitem__)[:kept])
    assert sorted(rows + others) == list(range(long + short))


def test_repeated_documents_are_counted_once() -> None:
    source = [Document(str(row), "xy"[row % 2] * 50) for row in range(20)] + documents([40, 50])
    learning = Learning.of(source, 20, 10**6, lambda size: None)
    assert len({text[0] for text in learning.texts(source, lambda size: None)}) == 2


def test_only_the_first_characters_are_read() -> None:
    seen: list[int] = []
    source = documents([30] * 10)
    learning = Learning.of(iter(source), 20, 91, seen.append)
    assert (learning.documents, seen) == (4, [60] * 4)
    assert len(list(learning.texts(iter(source), seen.append))) == 2
    assert seen == [60] * 8


def test_the_bound_is_between_the_hashes_of_both_halves() -> None:
    source = documents(np.random.default_rng(0).integers(1, 60, 200).tolist())
    bound = Learning.of(source, 20, 10**6, lambda size: None).bound
    kept = sum(hashlib.sha256(d.text.encode()).digest() < bound for d in source if len(d.text) >= 10)
    long = sum(len(document.text) >= 10 for document in source)
    assert kept == (long + 1) // 2
