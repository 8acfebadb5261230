"""Pretended distances by brute force over all pairs."""

import pytest
import torch

from extrapolate.encodings.plan import Pairs
from extrapolate.extensions.distances import ChunkedPairs, GroupedPairs, LeakyPairs, SelfExtend, ShiftedPairs
from extrapolate.extensions.jet_long import RegroupedPairs
from extrapolate.extensions.windows import SinkPairs


def distances(pairs: Pairs, length: int) -> dict[tuple[int, int], float]:
    """The pretended distance of every pair of a query and a key before it, or itself, that is seen."""
    index = torch.arange(length, dtype=torch.float32)
    found = {}
    for branch in pairs.branches():
        seen = branch.seen(index[:, None], index[None, :])
        apart = branch.queries(index)[:, None] - branch.keys(index)[None, :]
        for i in range(length):
            for j in range(i + 1):
                if seen[i, j]:
                    assert (i, j) not in found, "a pair is seen twice"
                    found[i, j] = float(apart[i, j])
    return found


@pytest.mark.parametrize("window", [1, 3, 4])
@pytest.mark.parametrize("group", [1, 2, 5])
def test_the_farthest_of_grouped_pairs_is_the_largest_distance(group: int, window: int) -> None:
    pairs = GroupedPairs(group, window)
    for length in range(1, 16):
        assert pairs.farthest(length) == max(distances(pairs, length).values()), length


@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("seq_len", [2, 8])
def test_the_default_group_is_the_smallest_that_keeps_every_distance_within_l(seq_len: int, window: int) -> None:
    for length in range(1, 30):
        fitting = [
            group
            for group in range(1, length + 1)
            if max(distances(GroupedPairs(group, window), length).values()) < seq_len
        ]
        extension = SelfExtend(window=window)
        if not fitting:
            with pytest.raises(ValueError, match="no group keeps"):
                extension.plan(None, seq_len, length)
            continue
        made = extension.plan(None, seq_len, length).pairs
        assert made == (GroupedPairs(fitting[0], window) if fitting[0] > 1 else None), length


@pytest.mark.parametrize(
    ("pairs", "distance"),
    [
        (LeakyPairs(4, None), lambda i, j: min(i - j, 4)),
        (LeakyPairs(4, 3.0), lambda i, j: i - j if i - j < 4 else 4 + (i - j - 4) / 3),
        (GroupedPairs(3, 4), lambda i, j: i - j if i - j < 4 else i // 3 - j // 3 + 4 - 1),
        (
            ChunkedPairs(6, 4),
            lambda i, j: {0: i - j, 1: min(i % 4 + 4, 6) - j % 4}.get(i // 4 - j // 4, min(7, 6) - j % 4),
        ),
        (ChunkedPairs(9, 3), lambda i, j: {0: i - j, 1: i % 3 + 3 - j % 3}.get(i // 3 - j // 3, 5 - j % 3)),
        (ShiftedPairs(6, 2), lambda i, j: i - j if i - j < 6 else i - j - 4),
        (RegroupedPairs(3, 4), lambda i, j: i - j if i - j <= 4 else i // 3 - j // 3),
        (SinkPairs(2, 5, True), lambda i, j: i - j if i - j < 5 else min(i, 6) - j if j < 2 else None),
        (SinkPairs(2, 5, False), lambda i, j: i - j if i - j < 5 else 5 if j < 2 else None),
    ],
)
def test_every_pair_is_where_the_formula_says(pairs: Pairs, distance) -> None:
    expected = {(i, j): distance(i, j) for i in range(20) for j in range(i + 1)}
    found = distances(pairs, 20)
    assert set(found) == {pair for pair, apart in expected.items() if apart is not None}
    for pair, apart in found.items():
        assert apart == pytest.approx(expected[pair], abs=1e-5), pair
