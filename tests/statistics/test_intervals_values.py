"""What an interval says in words, and the bootstrap's intervals by the formula."""

import numpy as np
import pytest

from extrapolate.statistics.intervals import FEWEST, RESAMPLES, Interval, band, interval, standard_error


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
    found = interval(targets * (3.0 + 1e-15 * np.arange(30)), targets)
    assert found.low == found.high == found.mean
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


def test_a_band_without_any_spread_is_its_means() -> None:
    targets = np.arange(1.0, 13.0)[:, None] * np.ones(2)
    found = band(targets * [2.0, 3.0], targets)
    assert (found.low_B == found.mean_B).all()
    assert (found.high_B == found.mean_B).all()
    assert found.mean_B == pytest.approx([2.0, 3.0])


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
