"""Intervals: their coverage, by simulation, and what they do at the edges."""

import numpy as np
import pytest

from extrapolate.evaluation.statistics import FEWEST, Interval, interval

TRUTH = 0.05


def drawn(rng: np.random.Generator, clusters: int, mean: float = TRUTH) -> tuple[np.ndarray, np.ndarray]:
    """Sums and targets of documents whose sizes are skewed (log-normal) and whose effects are too (gamma)."""
    targets = np.ceil(np.exp(rng.normal(6, 0.7, clusters)))
    effect = mean + 0.1 * (rng.gamma(4.0, 1.0, clusters) - 4) / 2
    return targets * effect + np.sqrt(targets) * rng.normal(0, 0.5, clusters), targets


def coverage(clusters: int, trials: int) -> float:
    """How often a 95 % interval holds the truth."""
    rng = np.random.default_rng(1)
    found = [interval(*drawn(rng, clusters), resamples=1000, seed=trial) for trial in range(trials)]
    return float(np.mean([i.low is not None and i.high is not None and i.low <= TRUTH <= i.high for i in found]))


@pytest.mark.parametrize(("clusters", "trials"), [(30, 1000), (100, 600), (300, 300)])
def test_an_interval_holds_the_truth_as_often_as_it_says(clusters: int, trials: int) -> None:
    assert 0.93 <= coverage(clusters, trials) <= 0.97


def test_the_mean_is_weighted_by_targets() -> None:
    found = interval(np.array([1.0] * 9 + [100.0]), np.array([1.0] * 9 + [10.0]))
    assert found.mean == pytest.approx(109 / 19)


def test_equal_clusters_leave_no_doubt() -> None:
    assert interval(np.full(20, 2.0), np.full(20, 4.0)) == Interval(0.5, 0.5, 0.5, 20)


def test_too_few_clusters_have_no_interval() -> None:
    found = interval(*drawn(np.random.default_rng(0), FEWEST - 1))
    assert (found.low, found.high, found.verdict()) == (None, None, "too few")


def test_no_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="no targets"):
        interval(np.zeros(20), np.zeros(20))


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(-2, -1, "win"), (-1, 1, "tie"), (1, 2, "loss"), (-1, 0, "tie"), (0, 1, "tie")]
)
def test_a_win_needs_an_interval_that_excludes_zero(low: float, high: float, verdict: str) -> None:
    assert Interval(0.0, low, high, 20).verdict() == verdict


def test_the_same_data_give_the_same_interval() -> None:
    sums, targets = drawn(np.random.default_rng(0), 40)
    assert interval(sums, targets) == interval(sums, targets)
    assert interval(sums, targets).low != interval(sums, targets, seed=1).low


def test_more_confidence_is_a_wider_interval() -> None:
    sums, targets = drawn(np.random.default_rng(0), 40)
    narrow, wide = interval(sums, targets, confidence=0.8), interval(sums, targets, confidence=0.99)
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high
