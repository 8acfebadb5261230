"""Mixtures of text and probes: shares, weights, and windows that follow from their number alone."""

import numpy as np
import pytest

from extrapolate.data.mixture import MixedWindows, Mixture, TrainingWindows
from extrapolate.data.probes.base import Vocabulary

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
    _, weights = windows("needle=0.3,passkey=0.5").batch(0, 4000)
    counts = {count: int((kinds(weights) == count).sum()) for count in (1, 4, L)}
    assert sum(counts.values()) == 4000
    for count, share in ((1, 0.3), (4, 0.5), (L, 0.2)):
        assert abs(counts[count] - 4000 * share) < 4 * np.sqrt(4000 * share * (1 - share))


@pytest.mark.parametrize("text", ["needle=1", "needle=0.5,passkey=0.5", "copy=.1,needle=.2,passkey=.3,mqar=.4"])
def test_shares_of_one_leave_no_text(text):
    _, weights = windows(text).batch(0, 3000)
    assert kinds(weights).max() <= L // 4


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
        ("passkey=", "is not a probe and its share"),
        ("passkey=much", "is not a probe and its share"),
        ("paskey=0.5", "did you mean 'passkey'"),
        ("passkey=-0.5", "above 0 and at most 1, not -0.5"),
        ("passkey=0", "above 0"),
        ("passkey=nan", "above 0"),
        ("passkey=1.5", "at most 1"),
        ("passkey=0.75,needle=0.5", "add up to 1.25"),
        ("passkey=0.25,passkey:length=4=0.25", "passkey is twice"),
        ("", "name probes and their shares"),
    ],
)
def test_what_is_no_mixture_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Mixture.parse(text)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at least 61 tokens, and a window has 24"):
        windows("passkey:length=30=0.5")
    with pytest.raises(ValueError, match="vocabulary of at least 405"):
        windows("mqar:symbols=200=0.5")
