"""Intervals: their coverage, by simulation, the bootstrap by its formula, and what they do at the edges."""

import numpy as np
import pytest

from extrapolate.statistics.intervals import FEWEST, RESAMPLES, Interval, band, interval, standard_error

TRUTH = 0.05


def drawn(
    rng: np.random.Generator, clusters: int, mean: float = TRUTH, spread: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Sums and targets of documents whose sizes are skewed (log-normal) and whose effects are too (gamma)."""
    targets = np.ceil(np.exp(rng.normal(6, spread, clusters)))
    effect = mean + 0.1 * (rng.gamma(4.0, 1.0, clusters) - 4) / 2
    return targets * effect + np.sqrt(targets) * rng.normal(0, 0.5, clusters), targets


@pytest.mark.parametrize("spread", [0.7, 1.0])
@pytest.mark.parametrize(("clusters", "trials"), [(30, 1500), (100, 1000), (300, 500)])
def test_an_interval_holds_the_truth_as_often_as_it_says(clusters: int, trials: int, spread: float) -> None:
    rng = np.random.default_rng([clusters, round(10 * spread)])
    found = [interval(*drawn(rng, clusters, spread=spread), resamples=500, seed=trial) for trial in range(trials)]
    held = [i.low is not None and i.high is not None and i.low <= TRUTH <= i.high for i in found]
    assert 0.93 <= np.mean(held) <= 0.97


def test_the_standard_error_of_equal_shares_is_that_of_a_mean() -> None:
    effect = np.random.default_rng(0).normal(size=12)
    assert standard_error(effect, np.full(12, 1 / 12)) == pytest.approx(effect.std(ddof=1) / 12**0.5)


def test_the_standard_error_against_a_loop() -> None:
    """Each residual, weighted by its size, over the square root of one minus its cluster's leverage."""
    sums, targets = drawn(np.random.default_rng(0), 15)
    mean, squares = sums.sum() / targets.sum(), 0.0
    leverage = np.diag(np.outer(targets**0.5, targets**0.5) / targets.sum())  # of the regression through size
    for total, size, own in zip(sums, targets, leverage, strict=True):
        squares += ((total - mean * size) / (1 - own) ** 0.5) ** 2
    assert standard_error(sums / targets, targets / targets.sum()) == pytest.approx(squares**0.5 / targets.sum())


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


def test_an_effect_in_one_cluster_alone_has_a_finite_interval() -> None:
    """Most resamples then draw nothing but zeros, and have no spread to be divided by."""
    found = interval(np.array([3.0, *[0.0] * 39]), np.arange(1.0, 41.0))
    assert found.low is not None
    assert found.high is not None
    assert -1 < found.low <= found.mean <= found.high < 10


def test_equal_clusters_leave_no_doubt() -> None:
    assert interval(np.full(20, 2.0), np.full(20, 4.0)) == Interval(0.5, 0.5, 0.5, 20)
    targets = np.arange(1.0, 31.0)
    found = interval(0.1 * targets, targets)
    assert found.low == found.high == found.mean == pytest.approx(0.1)


def test_too_few_clusters_have_no_interval() -> None:
    found = interval(*drawn(np.random.default_rng(0), FEWEST - 1))
    assert (found.low, found.high, found.verdict()) == (None, None, "too few")


def test_no_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="no targets"):
        interval(np.zeros(20), np.zeros(20))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-2, -1, "better"), (-1, 2, "undecided"), (1, 2, "worse"), (-1, 0, "undecided"), (0, 1, "undecided")],
)
def test_an_order_needs_an_interval_that_excludes_zero(low: float, high: float, verdict: str) -> None:
    assert Interval((low + high) / 2, low, high, 20).verdict() == verdict


@pytest.mark.parametrize(
    ("mean", "verdict"), [(-0.011, "better"), (-0.009, "equivalent"), (0.009, "equivalent"), (0.011, "worse")]
)
def test_a_difference_too_small_to_matter_is_none_however_sure(mean: float, verdict: str) -> None:
    assert Interval(mean, mean - 1e-5, mean + 1e-5, 300).verdict() == verdict
    assert Interval(mean, mean - 1e-5, mean + 1e-5, 300).verdict(least=0.02) == "equivalent"
    assert Interval(mean, mean - 1e-5, mean + 1e-5, 300).verdict(least=0.0) in ("better", "worse")


@pytest.mark.parametrize(
    ("mean", "low", "high", "verdict"),
    [
        (0.0, -0.001, 0.0, "equivalent"), (-0.07, -0.208, 0.059, "undecided"), (0.008, 0.003, 0.013, "undecided"),
        (0.0, -0.01, 0.001, "undecided"), (0.0, -0.001, 0.01, "undecided"), (0.012, 0.001, 0.023, "worse"),
        (-0.003, -0.004, -0.002, "equivalent"), (0.0, 0.0, 0.0, "equivalent"),
    ],
)  # fmt: skip
def test_equivalent_is_a_whole_interval_within_what_matters(mean: float, low: float, high: float, verdict: str) -> None:
    assert Interval(mean, low, high, 40).verdict() == verdict


def test_the_mean_is_weighted_by_targets() -> None:
    found = interval(np.array([1.0] * 9 + [100.0]), np.array([1.0] * 9 + [10.0]))
    assert found.mean == pytest.approx(109 / 19)


def test_the_same_data_give_the_same_interval() -> None:
    sums, targets = drawn(np.random.default_rng(0), 40)
    assert interval(sums, targets) == interval(sums, targets)
    assert interval(sums, targets).low != interval(sums, targets, seed=1).low


def test_more_confidence_is_a_wider_interval() -> None:
    sums, targets = drawn(np.random.default_rng(0), 40)
    narrow, wide = interval(sums, targets, confidence=0.8), interval(sums, targets, confidence=0.99)
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


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

    def test_one_bucket_is_an_interval(self) -> None:
        sums, targets = drawn(np.random.default_rng(0), 40)
        one, many = interval(sums, targets), band(sums[:, None], targets[:, None])
        assert (many.mean_B[0], many.low_B[0], many.high_B[0]) == pytest.approx((one.mean, one.low, one.high))

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

    def test_too_few_clusters(self) -> None:
        found = band(*self.drawn(np.random.default_rng(0), FEWEST - 1, 3))
        assert (found.low_B, found.high_B, found.clusters) == (None, None, FEWEST - 1)
        with pytest.raises(ValueError, match="every bucket"):
            band(np.ones((2, 2)), np.eye(2))


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
