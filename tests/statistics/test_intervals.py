"""Intervals: their coverage, by simulation, the bootstrap by its formula, and what they do at the edges."""

import math

import numpy as np
import pytest

from extrapolate.statistics.intervals import FEWEST, RESAMPLES, Interval, band, interval, standard_error, wilson

TRUTH = 0.05


def drawn(
    rng: np.random.Generator, clusters: int, mean: float = TRUTH, spread: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Sums and targets of documents whose sizes are skewed (log-normal) and whose effects are too (gamma)."""
    targets = np.ceil(np.exp(rng.normal(6, spread, clusters)))
    effect = mean + 0.1 * (rng.gamma(4.0, 1.0, clusters) - 4) / 2
    return targets * effect + np.sqrt(targets) * rng.normal(0, 0.5, clusters), targets


@pytest.mark.parametrize(
    ("clusters", "trials", "spread"), [(30, 1500, 0.7), (30, 1500, 1.0), (100, 1000, 1.0), (300, 300, 0.7)]
)
def test_an_interval_holds_the_truth_as_often_as_it_says(clusters: int, trials: int, spread: float) -> None:
    rng = np.random.default_rng([clusters, round(10 * spread)])
    found = [interval(*drawn(rng, clusters, spread=spread), resamples=500, seed=trial) for trial in range(trials)]
    held = [i.low is not None and i.high is not None and i.low <= TRUTH <= i.high for i in found]
    assert 0.93 <= np.mean(held) <= 0.97


def test_the_standard_error_against_a_loop() -> None:
    """Each residual, weighted by its size, over the square root of one minus its cluster's leverage."""
    sums, targets = drawn(np.random.default_rng(0), 15)
    mean, squares = sums.sum() / targets.sum(), 0.0
    leverage = np.diag(np.outer(targets**0.5, targets**0.5) / targets.sum())  # of the regression through size
    for total, size, own in zip(sums, targets, leverage, strict=True):
        squares += ((total - mean * size) / (1 - own) ** 0.5) ** 2
    assert standard_error(sums / targets, targets / targets.sum()) == pytest.approx(squares**0.5 / targets.sum())
    equal = standard_error(sums, np.full(15, 1 / 15))
    assert equal == pytest.approx(sums.std(ddof=1) / 15**0.5)  # that of a mean


def test_the_standard_error_of_many_at_once_is_that_of_each() -> None:
    """Resamples and any further axes, each with shares of their own."""
    rng = np.random.default_rng(0)
    effect_BRC, share_BC = rng.normal(size=(2, 3, 11)), rng.dirichlet(np.ones(11), size=2)
    found_BR = standard_error(effect_BRC, share_BC[:, None])
    for b, r in np.ndindex(2, 3):
        assert found_BR[b, r] == pytest.approx(standard_error(effect_BRC[b, r], share_BC[b]))


def test_clusters_without_targets_count_for_nothing() -> None:
    sums, targets = drawn(np.random.default_rng(0), 40)
    assert interval(np.append(sums, 0.0), np.append(targets, 0.0)) == interval(sums, targets)
    assert interval(sums, targets).low != interval(sums, targets, seed=1).low


def test_an_effect_in_one_cluster_alone_has_a_finite_interval() -> None:
    """Most resamples then draw nothing but zeros, and have no spread to be divided by."""
    found = interval(np.array([3.0, *[0.0] * 39]), np.arange(1.0, 41.0))
    assert found.low is not None
    assert found.high is not None
    assert -1 < found.low <= found.mean <= found.high < 10


def test_too_few_clusters_have_no_interval_and_no_band_and_none_are_refused() -> None:
    sums, targets = drawn(np.random.default_rng(0), FEWEST - 1)
    found, many = interval(sums, targets), band(sums[:, None], targets[:, None])
    assert (found.low, found.high, found.verdict()) == (None, None, "too few")
    assert (many.low_B, many.high_B, many.clusters) == (None, None, FEWEST - 1)
    with pytest.raises(ValueError, match="no targets"):
        interval(np.zeros(20), np.zeros(20))
    with pytest.raises(ValueError, match="every bucket"):
        band(np.ones((2, 2)), np.eye(2))


@pytest.mark.parametrize(
    ("mean", "low", "high", "verdict"),
    [
        # An order needs an interval that excludes zero.
        (-1.5, -2, -1, "better"), (1.5, 1, 2, "worse"), (0.5, -1, 2, "undecided"), (-0.5, -1, 0, "undecided"),
        (0.5, 0, 1, "undecided"), (-0.07, -0.208, 0.059, "undecided"), (0.012, 0.001, 0.023, "worse"),
        # A difference too small to matter is none, however sure.
        (-0.011, -0.01101, -0.01099, "better"), (-0.009, -0.00901, -0.00899, "equivalent"),
        (0.009, 0.00899, 0.00901, "equivalent"), (0.011, 0.01099, 0.01101, "worse"),
        # Equivalent is a whole interval within what matters.
        (0.0, -0.001, 0.0, "equivalent"), (0.008, 0.003, 0.013, "undecided"), (0.0, -0.01, 0.001, "undecided"),
        (0.0, -0.001, 0.01, "undecided"), (-0.003, -0.004, -0.002, "equivalent"), (0.0, 0.0, 0.0, "equivalent"),
    ],
)  # fmt: skip
def test_verdicts(mean: float, low: float, high: float, verdict: str) -> None:
    assert Interval(mean, low, high, 20).verdict() == verdict


def test_verdicts_with_another_least() -> None:
    assert Interval(0.011, 0.01099, 0.01101, 300).verdict(least=0.02) == "equivalent"
    assert Interval(-0.009, -0.00901, -0.00899, 300).verdict(least=0.0) == "better"


class TestBand:
    @staticmethod
    def drawn(rng: np.random.Generator, clusters: int, buckets: int) -> tuple[np.ndarray, np.ndarray]:
        """Skewed sizes; effects that a document's buckets share in part."""
        targets = np.ceil(np.exp(rng.normal(5, 0.7, (clusters, 1)))) * np.ones(buckets)
        own = 0.1 * (rng.gamma(4.0, 1.0, (clusters, 1)) - 4) / 2
        effect = TRUTH + own + rng.normal(0, 0.1, (clusters, buckets))
        return targets * effect, targets

    def test_it_holds_all_truths_at_once_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(5)
        held, each = [], []
        for trial in range(400):
            found = band(*self.drawn(rng, 40, 20), resamples=500, seed=trial)
            inside = (found.low_B <= TRUTH) & (found.high_B >= TRUTH)
            held.append(inside.all())
            each.append(inside.mean())
        assert 0.92 <= np.mean(held) <= 0.98
        assert np.mean(each) > 0.985  # single buckets far more often: many are looked at

    def test_a_bucket_without_spread_and_a_cluster_without_targets(self) -> None:
        sums, targets = self.drawn(np.random.default_rng(0), 40, 3)
        sums[:, 1] = 0.0
        whole = band(sums, targets)
        assert whole.low_B[1] == whole.high_B[1] == 0
        assert whole.low_B[0] < whole.mean_B[0] < whole.high_B[0]
        sums, targets = np.vstack([sums, sums[:1]]), np.vstack([targets, [[0, 5, 5]]])
        with_missing = band(sums, targets)
        assert with_missing.clusters == 40
        assert with_missing.low_B == pytest.approx(whole.low_B)


def test_an_interval_in_words() -> None:
    assert Interval(0.0214, 0.0131, 0.0299, 30).text() == "+0.021 [+0.013, +0.030]"
    assert Interval(-1.5, -2.0, 0.25, 30).text() == "-1.500 [-2.000, +0.250]"
    assert Interval(-0.5, None, None, 3).text() == "-0.500 too few"


def by_the_formula(
    effect_C: np.ndarray, share_C: np.ndarray, confidence: float, seed: int, resamples: int
) -> tuple[float, float]:
    """mean - q error, q the quantiles of the resamples' deviations over their own errors: one resample at a time."""
    count, mean = len(effect_C), effect_C @ share_C
    rng, deviations = np.random.default_rng(seed), []
    for chosen in rng.integers(0, count, (resamples, count)):
        drawn = effect_C[chosen] - effect_C.mean()
        deviations.append(drawn @ share_C / standard_error(drawn, share_C))
    error = standard_error(effect_C, share_C)
    low, high = np.quantile(deviations, [1 / 2 + confidence / 2, 1 / 2 - confidence / 2])
    return mean - low * error, mean - high * error


@pytest.mark.parametrize("count", [FEWEST, 25])
def test_an_interval_is_the_studentised_bootstraps(count: int) -> None:
    rng = np.random.default_rng(count)
    targets = rng.integers(5, 60, count)
    effect = rng.gamma(2.0, 1.0, count)
    found = interval(effect * targets, targets)
    expected = by_the_formula(effect, targets / targets.sum(), 0.95, 0, RESAMPLES)
    assert (found.low, found.high) == pytest.approx(expected)
    assert (found.mean, found.clusters) == (pytest.approx(np.average(effect, weights=targets)), count)
    other = interval(effect * targets, targets, confidence=0.8, resamples=300, seed=5)
    assert (other.low, other.high) == pytest.approx(by_the_formula(effect, targets / targets.sum(), 0.8, 5, 300))


def test_effects_that_differ_by_rounding_alone_have_no_spread() -> None:
    targets = np.arange(1.0, 31.0)
    for effect in (3.0, 3.0 + 1e-15 * np.arange(30)):
        found = interval(targets * effect, targets)
        assert found.low == found.high == found.mean == pytest.approx(3.0)
    spread = interval(targets * (3.0 + 1e-9 * np.arange(30)), targets)
    assert spread.low < spread.mean < spread.high


def test_a_band_holds_the_furthest_deviation_of_all_buckets() -> None:
    """By the formula: quantiles of the largest and of the smallest deviation over buckets, one resample at a time."""
    rng = np.random.default_rng(3)
    targets_CB = rng.integers(5, 60, (15, 3))
    effect_CB = rng.gamma(2.0, 1.0, (15, 3))
    found = band(effect_CB * targets_CB, targets_CB, confidence=0.9, resamples=400, seed=2)
    share_CB = targets_CB / targets_CB.sum(axis=0)
    draws = np.random.default_rng(2).integers(0, 15, (400, 15))
    deviations = np.array(
        [
            [
                (effect_CB[chosen, b] - effect_CB[:, b].mean())
                @ share_CB[:, b]
                / standard_error(effect_CB[chosen, b] - effect_CB[:, b].mean(), share_CB[:, b])
                for b in range(3)
            ]
            for chosen in draws
        ]
    )
    above, below = np.quantile(deviations.max(axis=1), 0.95), np.quantile(deviations.min(axis=1), 0.05)
    error_B = [standard_error(effect_CB[:, b], share_CB[:, b]) for b in range(3)]
    mean_B = (effect_CB * share_CB).sum(axis=0)
    np.testing.assert_allclose(found.mean_B, mean_B)
    np.testing.assert_allclose(found.low_B, mean_B - above * np.array(error_B))
    np.testing.assert_allclose(found.high_B, mean_B - below * np.array(error_B))
    assert found.clusters == 15


def test_a_band_around_an_effect_in_one_cluster_alone_is_finite() -> None:
    """Most resamples then draw nothing but zeros in that bucket, and have no spread to be divided by."""
    effects = np.zeros((20, 2))
    effects[0, 0] = 3.0
    effects[:, 1] = np.random.default_rng(0).normal(size=20)
    found = band(effects, np.ones((20, 2)))
    assert np.isfinite(found.low_B).all()
    assert (found.low_B <= found.mean_B).all()
    assert (found.mean_B <= found.high_B).all()
    assert found.mean_B[0] == pytest.approx(0.15)
    assert found.low_B[0] > -1
    targets = np.arange(1.0, 13.0)[:, None] * np.ones(2)
    same = band(targets * [2.0, 3.0], targets)
    assert (same.low_B == same.mean_B).all()
    assert (same.high_B == same.mean_B).all()
    assert same.mean_B == pytest.approx([2.0, 3.0])


def test_wilson_is_the_interval_of_those_shares_that_the_score_test_keeps() -> None:
    """By its definition: at the ends |p - accuracy| = z sqrt(p (1 - p) / n)."""
    for right, trials in ((1, 64), (20, 64), (63, 64), (5, 10)):
        accuracy = right / trials
        for end in wilson(accuracy, trials):
            assert abs(end - accuracy) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / trials), rel=1e-6)
    assert wilson(0.0, 64)[0] == 0.0
    assert wilson(1.0, 64)[1] == 1.0
    assert wilson(0.0, 64)[1] == pytest.approx(0.0566, abs=1e-4)
