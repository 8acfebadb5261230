"""What is held out is decided while documents come, as if all had been there at once, and is not learned from."""

import hashlib
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extrapolate.data import heldout
from extrapolate.data.documents import Document
from extrapolate.data.heldout import HeldOut, Learning
from extrapolate.errors import UserError

# The tests are quick, but a machine with other work may not be.
under_load = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SMALL = {"test": (0.25, 6, 40), "validation": (0.05, 3, 10)}


def by_all_at_once(digests: list[bytes], lengths: list[int], least: int, bound: bytes) -> dict[int, str]:
    """The rule, read aloud: the first of the long ones in the order of their hashes, as many as both limits allow."""
    long = sorted((digest, row) for row, digest in enumerate(digests) if lengths[row] >= least)
    there = [row for digest, row in long if digest < bound]
    chosen: dict[int, str] = {}
    for name, (share, most, most_tokens) in heldout.HELDOUT.items():
        wanted = max(1, min(most, round(share * len(long))))
        one_is_left = len(there) - (name == "test")
        rows = [row for row in there[:one_is_left] if row not in chosen][:wanted]
        allowed = [n for n in range(1, len(rows) + 1) if n == 1 or sum(lengths[row] for row in rows[:n]) <= most_tokens]
        chosen |= dict.fromkeys(rows[: max(allowed)], name)
    return chosen


@given(st.lists(st.integers(1, 30), min_size=3, max_size=80), st.integers(0, 1000), st.integers(0, 256))
@under_load
def test_it_is_what_all_at_once_give(lengths: list[int], seed: int, learned: int) -> None:
    digests = [hashlib.sha256(b"%d %d" % (seed, row)).digest() for row in range(len(lengths))]
    bound = bytes([learned]) if learned < 256 else b"\xff" * 32  # of a document's hash; the tokenizer learned above
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heldout, "HELDOUT", SMALL)
        chooser = HeldOut(5, bound)
        kept = {row for row, pair in enumerate(zip(digests, lengths, strict=True)) if chooser.may_hold(*pair)}
        if sum(length >= 5 for length in lengths) < 2:
            with pytest.raises(UserError, match="testing and validation need one each"):
                chooser.chosen()
            return
        if sum(length >= 5 and digest < bound for digest, length in zip(digests, lengths, strict=True)) < 2:
            with pytest.raises(UserError, match=r"learned from all but [01] of the \d+ documents of at least 5 tokens"):
                chooser.chosen()
            return
        chosen = chooser.chosen()
        assert chosen == by_all_at_once(digests, lengths, 5, bound)
        assert chosen.keys() <= kept


@given(st.lists(st.integers(1, 30), min_size=3, max_size=60), st.integers(0, 1000), st.data())
@under_load
def test_near_duplicates_are_drawn_as_one(lengths: list[int], seed: int, data: st.DataObject) -> None:
    digests = [hashlib.sha256(b"%d %d" % (seed, row)).digest() for row in range(len(lengths))]
    rows = st.integers(0, len(lengths) - 1)
    pairs = data.draw(st.sets(st.tuples(rows, rows).filter(lambda pair: pair[0] != pair[1]), max_size=12))
    never = data.draw(st.sets(rows, max_size=3))
    order = data.draw(st.permutations(range(len(lengths))))
    chooser, again = HeldOut(5), HeldOut(5)
    for row in range(len(lengths)):
        chooser.may_hold(digests[row], lengths[row])
    for row in order:
        again.may_hold(digests[row], lengths[row])
    place = {row: at for at, row in enumerate(order)}
    try:
        chosen = chooser.chosen(pairs, never)
    except UserError:  # too few are left
        return
    assert all(chosen.get(one) == chosen.get(other) for one, other in pairs)
    assert all(lengths[row] >= 5 for row in chosen)
    assert not never & chosen.keys()
    assert {"test", "validation"} == set(chosen.values())
    assert len(chosen) < len(lengths)
    moved = again.chosen({(place[one], place[other]) for one, other in pairs}, {place[row] for row in never})
    assert {order[row]: split for row, split in moved.items()} == chosen


def test_of_many_documents_few_are_kept_back() -> None:
    chooser, draws = HeldOut(1), random.Random(0)
    kept = sum(chooser.may_hold(draws.randbytes(32), 10) for _ in range(20_000))
    assert 640 <= kept < 640 * 5  # 640 (1 + ln(20 000 / 640)) are expected: twice those that are held out
    assert len(chooser.chosen()) == 320


def test_a_large_corpus_does_not_lose_a_quarter_to_testing() -> None:
    chooser, draws = HeldOut(8193), random.Random(0)
    for _ in range(600):
        chooser.may_hold(draws.randbytes(32), 150_000)
    splits = list(chooser.chosen().values())
    assert (splits.count("test"), splits.count("validation")) == (53, 13)


def documents(sizes: list[int]) -> list[Document]:
    """Distinct documents with the given numbers of characters, each two bytes long."""
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


def test_only_the_first_characters_are_read() -> None:
    seen: list[int] = []
    source = documents([30] * 10)
    learning = Learning.of(iter(source), 20, 91, seen.append)
    assert (learning.documents, seen) == (4, [60] * 4)
    assert len(list(learning.texts(iter(source), seen.append))) == 2
    assert seen == [60] * 8
