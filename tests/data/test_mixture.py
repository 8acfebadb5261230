"""Training windows: every token once an epoch; mixtures with probes: shares, weights, and what a number decides."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate.data.mixture import MixedWindows, Mixture, TrainingWindows
from extrapolate.data.probes.base import Vocabulary
from extrapolate.data.shards import schema
from extrapolate.data.store import Split


@pytest.fixture(scope="module")
def numbered() -> Split:
    """A stream whose tokens are their own places, in three pieces: a window says where it was cut."""
    bounds = [0, 7, 300, 301, 650, 990, 1000]
    batches = []
    for first in (0, 2, 4):
        documents = [list(range(bounds[i], bounds[i + 1])) for i in (first, first + 1)]
        batches.append(pa.record_batch([[f"d{first}", f"d{first + 1}"], [1, 1], documents], schema=schema("uint16")))
    return Split("train", batches)


@pytest.mark.parametrize("seq_len", [1, 2, 37, 500, 999])
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


@settings(deadline=None)  # a machine with other work is slow
@given(seed=st.integers(0, 2**32), seq_len=st.integers(1, 400), sizes=st.lists(st.integers(1, 9), max_size=8))
def test_the_grouping_of_calls_makes_no_difference(numbered: Split, seed: int, seq_len: int, sizes: list[int]) -> None:
    total = sum(sizes) + 1
    expected = TrainingWindows(numbered, seq_len, seed).batch(0, total)
    windows, first = TrainingWindows(numbered, seq_len, seed), 0
    for size in [*sizes, 1]:
        np.testing.assert_array_equal(windows.batch(first, size), expected[first : first + size])
        first += size


def test_a_stream_that_fills_no_window_is_refused(numbered: Split) -> None:
    with pytest.raises(ValueError, match=r"train split has 1000 tokens.*window of 1000.*smaller `seq_len`"):
        TrainingWindows(numbered, 1000, seed=0)


L = 24
VOCABULARY = Vocabulary(300, 7)


class Text:
    """A split of random tokens."""

    name = "made up"
    n_tokens = 5000
    stream = np.random.default_rng(5).integers(300, size=5000).astype(np.uint16)

    def slice(self, start: int, end: int) -> np.ndarray:
        return self.stream[start:end]


def windows(text: str, seed: int = 0) -> MixedWindows:
    split = Text()
    return MixedWindows(TrainingWindows(split, L, seed), Mixture.parse(text), split, VOCABULARY)


def kinds(weights: np.ndarray) -> np.ndarray:
    """How many targets count in each window."""
    return (weights > 0).sum(axis=1)


def test_shares_are_kept():
    _, weights = windows("needle=0.3,passkey=0.5").batch(0, 2000)
    counts = {count: int((kinds(weights) == count).sum()) for count in (1, 4, L)}
    assert sum(counts.values()) == 2000
    for count, share in ((1, 0.3), (4, 0.5), (L, 0.2)):
        assert abs(counts[count] - 2000 * share) < 4 * np.sqrt(2000 * share * (1 - share))


def test_every_window_weighs_the_same_and_only_answers_count():
    mixed = windows("copy=0.3,mqar=0.3")
    tokens, weights = mixed.batch(0, 400)
    assert weights.sum(axis=1) == pytest.approx(np.ones(400), abs=1e-6)
    for row in range(400):
        counted = np.flatnonzero(weights[row])
        assert len(set(weights[row, counted])) == 1
        if len(counted) < L:
            assert np.isin(tokens[row, counted + 1], VOCABULARY.symbols(64)).all()


def test_text_keeps_its_order_and_its_windows():
    tokens, weights = windows("needle=0.5", seed=3).batch(100, 300)
    plain = TrainingWindows(Text(), L, 3).batch(100, 300)
    text = kinds(weights) == L
    assert 100 < text.sum() < 200
    assert (tokens[text] == plain[text]).all()
    assert (tokens[~text] != plain[~text]).any(axis=1).all()


def test_a_window_follows_from_the_seed_and_its_number_alone():
    mixed = windows("copy=0.3,passkey=0.3")
    tokens, weights = mixed.batch(0, 60)
    for first, size in ((37, 5), (0, 1), (59, 1)):  # in any order, and by another object
        for again in (mixed.batch(first, size), windows("passkey=0.3,copy=0.3").batch(first, size)):
            assert (again[0] == tokens[first : first + size]).all()
            assert (again[1] == weights[first : first + size]).all()
    assert (windows("copy=0.3,passkey=0.3", seed=1).batch(0, 60)[1] != weights).any()


def test_one_mixture_has_one_text():
    text = Mixture.parse(" (mqar:queries=4,pairs=8) = .25, passkey:length=4=0.250").text
    assert text == "(mqar:pairs=8,queries=4)=0.25,passkey=0.25"
    assert Mixture.parse(text).text == text
    assert Mixture.parse("needle=1").text == "needle=1"
    third = Mixture.parse("needle=0.3333333333333,copy=0.3333333333333")
    assert Mixture.parse(third.text).text == third.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("passkey", "'passkey' is not a probe and its share: expected something like passkey=0.25"),
        ("passkey=-0.5", "above 0 and at most 1, not -0.5"),
        ("passkey=0.75,needle=0.5", "add up to 1.25"),
        ("passkey=0.25,passkey:length=4=0.25", "passkey is twice"),
    ],
)
def test_what_is_no_mixture_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Mixture.parse(text)
