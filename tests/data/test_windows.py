"""Training windows: every token once an epoch, in an order that the seed and the epoch alone decide."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extrapolate.data.mixture import TrainingWindows
from extrapolate.data.shards import schema
from extrapolate.data.store import Split

TOKENS = 1000


@pytest.fixture(scope="module")
def numbered() -> Split:
    """A stream whose tokens are their own places, in three pieces: a window says where it was cut."""
    bounds = [0, 7, 300, 301, 650, 990, TOKENS]
    batches = []
    for first in (0, 2, 4):
        documents = [list(range(bounds[i], bounds[i + 1])) for i in (first, first + 1)]
        batches.append(pa.record_batch([[f"d{first}", f"d{first + 1}"], [1, 1], documents], schema=schema("uint16")))
    return Split("train", batches)


@pytest.mark.parametrize("seq_len", [1, 2, 9, 37, 64, 333, 500, 999])
def test_every_token_is_a_target_once_an_epoch(numbered: Split, seq_len: int) -> None:
    windows = TrainingWindows(numbered, seq_len, seed=3)
    # 999 tokens have one before them; those that fill no window wait for another seq_len.
    assert windows.count == 999 // seq_len
    for epoch in (0, 1):
        batch = windows.batch(epoch * windows.count, windows.count)
        assert batch.shape == (windows.count, seq_len + 1)
        assert batch.dtype == np.int64
        assert sorted(batch[:, 1:].flatten()) == list(range(1, windows.count * seq_len + 1))
        np.testing.assert_array_equal(np.diff(batch, axis=1), 1)


def test_the_order_is_shuffled_and_changes_every_epoch_and_seed(numbered: Split) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        windows = TrainingWindows(numbered, 20, seed)
        return windows.batch(epoch * windows.count, windows.count)[:, 0].tolist()

    orders = [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len({tuple(one) for one in [*orders, sorted(orders[0])]}) == 7
    assert orders == [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]


@given(seed=st.integers(0, 2**32), seq_len=st.integers(1, 400), sizes=st.lists(st.integers(1, 9), max_size=8))
def test_the_grouping_of_calls_makes_no_difference(numbered: Split, seed: int, seq_len: int, sizes: list[int]) -> None:
    total = sum(sizes) + 1
    expected = TrainingWindows(numbered, seq_len, seed).batch(0, total)
    windows, first = TrainingWindows(numbered, seq_len, seed), 0
    for size in [*sizes, 1]:
        np.testing.assert_array_equal(windows.batch(first, size), expected[first : first + size])
        first += size


@pytest.mark.parametrize("seq_len", [1000, 5000])
def test_a_stream_that_fills_no_window_is_refused(numbered: Split, seq_len: int) -> None:
    with pytest.raises(ValueError, match=rf"train split has 1000 tokens.*window of {seq_len}.*smaller `seq_len`"):
        TrainingWindows(numbered, seq_len, seed=0)
