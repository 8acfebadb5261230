"""Targets in one order, and sums over groups of them, against loops."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from extrapolate.data.shards import schema
from extrapolate.data.store import Split
from extrapolate.evaluation.protocols.base import Windows, targets_hash
from extrapolate.evaluation.targets import Targets, in_order, index_in_window, sums_by

SIZES = (30, 12, 25)


@pytest.fixture(scope="module")
def split() -> Split:
    """Documents whose tokens count up over all of them; one has no more bytes than tokens, others have."""
    batches, first = [], 0
    for i, size in enumerate(SIZES):
        columns = [[f"d{i}"], [(i + 1) * size], [list(range(first, first + size + 1))]]
        batches.append(pa.record_batch(columns, schema=schema("uint16")))
        first += size + 1
    return Split("test", batches)


# Out of order, and of two kinds: documents 2, 0, 1, places that fall, and some places in two documents.
GROUPS = (
    Windows(np.array([2, 0, 0]), np.array([3, 9, 1]), 6, 2),
    Windows(np.array([1, 0]), np.array([4, 20]), 4, 3),
)


def by_hand() -> list[tuple[int, int, int]]:
    """Document, place, and index of the last input in the window, of every target."""
    found = []
    for group in GROUPS:
        for document, start in zip(group.document_W.tolist(), group.start_W.tolist(), strict=True):
            for index in range(group.length - group.scored, group.length):
                found.append((document, start + index + 1, index))
    return sorted(found)


def test_targets_come_by_document_and_place(split: Split) -> None:
    targets = Targets.of(GROUPS, split, None)
    assert list(zip(targets.document_N, targets.place_N, strict=True)) == [(d, p) for d, p, _ in by_hand()]
    assert index_in_window(GROUPS).tolist() == [index for *_, index in by_hand()]


def test_values_come_in_the_order_of_targets() -> None:
    values = [group.targets() @ np.array([1000, 1]) for group in GROUPS]
    assert in_order(GROUPS, values).tolist() == [1000 * d + p for d, p, _ in by_hand()]


def test_bytes_are_every_tokens_own_where_they_are_known(split: Split) -> None:
    bytes_of = np.arange(100) ** 2
    targets = Targets.of(GROUPS, split, bytes_of)
    firsts = np.cumsum([0, *(size + 1 for size in SIZES)])
    assert targets.bytes_N.tolist() == [float((firsts[d] + p) ** 2) for d, p, _ in by_hand()]
    assert targets.bytes_N.dtype == np.float64


def test_bytes_are_the_documents_means_where_they_are_not(split: Split) -> None:
    assert Targets.of(GROUPS, split, None).bytes_N.tolist() == [d + 1 for d, *_ in by_hand()]


def test_sums_are_over_targets_that_agree_in_every_key() -> None:
    rng = np.random.default_rng(0)
    keys = [rng.integers(0, top, 200) for top in (3, 11, 2)]
    values = {"a": rng.normal(size=200), "b": rng.integers(0, 9, 200)}
    sums: dict[tuple[int, ...], np.ndarray] = defaultdict(lambda: np.zeros(3))
    for n in range(200):
        sums[tuple(int(key[n]) for key in keys)] += (values["a"][n], values["b"][n], 1)
    found = sums_by(keys, values)
    assert set(found) == {"a", "b", "n_targets", "key 0", "key 1", "key 2"}
    assert len(found["a"]) == len(sums)
    for i, key in enumerate(zip(found["key 0"], found["key 1"], found["key 2"], strict=True)):
        assert (found["a"][i], found["b"][i], found["n_targets"][i]) == pytest.approx(sums[key])


def test_the_hash_is_of_the_targets_and_not_of_their_windows() -> None:
    """The same targets from windows in another order, in other groups, of another length, have the same hash."""
    base = targets_hash(GROUPS, "c", "test")
    turned = tuple(Windows(g.document_W[::-1], g.start_W[::-1], g.length, g.scored) for g in reversed(GROUPS))
    longer = tuple(Windows(g.document_W, g.start_W - 7, g.length + 7, g.scored) for g in GROUPS)
    single = [Windows(g.document_W, g.start_W + i, g.length - g.scored + 1, 1) for g in GROUPS for i in range(g.scored)]
    assert [targets_hash(groups, "c", "test") for groups in (turned, longer, single)] == [base] * 3
    assert targets_hash(GROUPS[:1], "c", "test") != base
    assert len(base) == 16
