"""Intervals over seeds and documents, p values, and the correction for many of them."""

import math

import numpy as np
import pytest

from extrapolate.statistics.intervals import (
    FEWEST,
    MOST_SEEDS,
    SMALLEST,
    Estimate,
    Needed,
    estimate,
    holm,
    interval,
    judged_together,
)


def drawn(seeds: int, clusters: int = 40, between: float = 0.05, mean: float = -0.1) -> tuple[np.ndarray, np.ndarray]:
    """Sums with each seed, [seeds, clusters], and targets, [clusters]."""
    rng = np.random.default_rng([seeds, clusters])
    targets_C = rng.integers(5, 60, clusters).astype(float)
    effect_SC = mean + rng.normal(0, between, (seeds, 1)) + 0.1 * (rng.gamma(4.0, 1.0, clusters) - 4) / 2
    return targets_C * effect_SC, targets_C


@pytest.mark.parametrize(("seeds", "t"), [(2, 12.7062), (3, 4.30265), (5, 2.77645)])
def test_an_interval_is_as_wide_as_that_of_documents_and_that_of_seeds_together(seeds: int, t: float) -> None:
    """sqrt(documents^2 + seeds^2), at each end: the bootstrap of the seeds' mean, and Student's t of their means."""
    sum_SC, targets_C = drawn(seeds)
    found, documents = estimate(sum_SC, targets_C).interval(), interval(sum_SC.mean(axis=0), targets_C)
    assert documents.low is not None
    assert documents.high is not None
    by_seed = sum_SC.sum(axis=1) / targets_C.sum()
    reach = t * by_seed.std(ddof=1) / seeds**0.5
    assert found.mean == pytest.approx(by_seed.mean())
    assert found.low == pytest.approx(found.mean - math.hypot(found.mean - documents.low, reach), rel=1e-4)
    assert found.high == pytest.approx(found.mean + math.hypot(found.mean - documents.high, reach), rel=1e-4)


def test_differences_that_are_judged_together_share_their_spread_over_seeds() -> None:
    """Of 25, one degree of freedom: twice the own variance and once the mean, by Student's t with three."""
    found = [estimate(*drawn(3, clusters, between=0.02 * (1 + clusters % 3))) for clusters in range(30, 55)]
    means_MS = np.array([one.by_seed for one in found])
    own_M = means_MS.var(axis=1, ddof=1)
    for one, judged, own in zip(found, judged_together(found), own_M, strict=True):
        error = math.sqrt((2 * own + own_M.mean()) / 3 / 3)
        documents = one.of_these_runs().interval()
        for end, of_documents in (("low", documents.low), ("high", documents.high)):
            reach = math.hypot(one.mean - of_documents, 3.18245 * error)
            assert abs(getattr(judged.interval(), end) - one.mean) == pytest.approx(reach, rel=1e-4)


def test_nothing_is_shared_where_there_is_one_difference_or_nothing_is_known_of_seeds() -> None:
    one, two, lost = estimate(*drawn(3)), estimate(*drawn(2)), estimate(np.full((3, 12), np.inf), np.ones(12))
    assert [judged.interval() for judged in judged_together([one, two, lost])] == [
        each.interval() for each in (one, two, lost)
    ]
    assert judged_together([two, lost]) == [two, lost]


def test_without_a_spread_over_seeds_it_is_an_interval_over_documents() -> None:
    """With one seed, with two that agree exactly, and as if the seeds' mean were one seed."""
    (sum_C,), targets_C = drawn(1)
    for seeds in (1, 2):
        assert estimate(np.repeat(sum_C[None], seeds, axis=0), targets_C).interval() == interval(sum_C, targets_C)
    sum_SC, targets_C = drawn(3)
    found = estimate(sum_SC, targets_C)
    assert found.of_these_runs().interval() == interval(sum_SC.mean(axis=0), targets_C)
    assert found.by_seed == pytest.approx((sum_SC.sum(axis=1) / targets_C.sum()).tolist())


def test_documents_that_agree_exactly_leave_the_doubt_of_seeds() -> None:
    targets_C = np.arange(1.0, 31.0)
    found = estimate(targets_C * np.array([[0.1], [0.3]]), targets_C).interval()
    assert (found.low, found.high) == pytest.approx((0.2 - 1.27062, 0.2 + 1.27062), abs=1e-4)


@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("mean", [-0.2, -0.05, -0.01, 0.03])
def test_at_one_minus_p_the_interval_ends_at_zero(seeds: int, mean: float) -> None:
    sum_SC, targets_C = drawn(seeds, mean=mean)
    found = estimate(sum_SC, targets_C)
    p = found.p()
    assert p is not None
    assert SMALLEST < p < 1
    ends = found.interval(1 - p)
    assert (ends.high if found.mean < 0 else ends.low) == pytest.approx(0, abs=1e-4 * abs(found.mean))


def test_p_values_at_the_edges() -> None:
    targets_C = np.ones(20)
    assert estimate(np.full((1, 20), 2.0), targets_C).p() == SMALLEST
    assert estimate(np.zeros((1, 20)), targets_C).p() == 1
    assert estimate(np.full((1, FEWEST - 1), 2.0), targets_C[: FEWEST - 1]).p() is None
    with np.errstate(over="ignore"):
        assert estimate(np.linspace(-1e300, 1.5e300, 20)[None], targets_C).p() == 1  # its error is out of all bounds
    with np.errstate(invalid="ignore"):
        assert estimate(np.full((2, 20), math.inf), targets_C).p() is None


def test_p_values_go_on_beyond_the_resamples() -> None:
    """With 2000 resamples none is smaller than 0.001 by counting, which no correction for 100 comparisons passes."""
    p = [estimate(*drawn(1, mean=mean)).p() for mean in (-0.1, -0.15, -0.2, -0.4)]
    assert p == sorted(p, reverse=True)
    assert p[-1] < 1e-4


def test_the_wider_an_interval_the_smoother_is_its_growth() -> None:
    """Where the resamples end and Student's t goes on, nothing jumps."""
    found = estimate(*drawn(1))
    widths = [found.interval(confidence) for confidence in (0.98, 0.989, 0.9899, 0.9901, 0.991, 0.999)]
    lows = [one.low for one in widths]
    assert lows == sorted(lows, reverse=True)
    assert lows[3] == pytest.approx(lows[2], abs=1e-3)


def test_holms_correction_by_hand() -> None:
    """The least times 4, the next times 3, and none less than the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_holms_correction_of_noise_finds_something_in_one_table_of_twenty() -> None:
    rng = np.random.default_rng(0)
    found = [min(holm(rng.uniform(size=12).tolist())) < 0.05 for _ in range(1000)]
    assert 0.03 < np.mean(found) < 0.07


def known(difference: float, between: float, documents: float, clusters: int = 40) -> Estimate:
    """The estimate of somebody who knows the difference and both deviations, of seeds and of documents, nats."""
    by_seed = tuple(difference + side * between / math.sqrt(2) for side in (-1, 1))
    normal_R = np.sort(np.random.default_rng(0).standard_normal(20_000))
    return Estimate(difference, clusters, documents / math.sqrt(clusters), normal_R, by_seed)


@pytest.mark.parametrize(
    ("difference", "between", "documents", "verdict"),
    [
        (-0.06, 0.07, 0.02, "better"), (0.12, 0.07, 0.02, "worse"), (0.03, 0.01, 0.1, "worse"),
        (0.0, 0.01, 0.02, "equivalent"),
    ],
)  # fmt: skip
def test_the_study_that_is_advised_decides_in_about_four_of_five(
    difference: float, between: float, documents: float, verdict: str
) -> None:
    needed = known(difference, between, documents).needed()
    assert needed is not None
    assert needed.seeds is not None

    def decided(seeds: int, clusters: int) -> float:
        rng, found = np.random.default_rng(5), []
        for _ in range(150):
            effect_SC = difference + between * rng.normal(size=(seeds, 1)) + documents * rng.normal(size=clusters)
            found.append(estimate(effect_SC, np.ones(clusters), resamples=500).interval().verdict() == verdict)
        return float(np.mean(found))

    assert 0.68 < decided(needed.seeds, needed.clusters) < 0.97
    if needed.seeds > 5:
        assert decided(needed.seeds // 2, needed.clusters) < 0.6


def test_documents_are_advised_where_seeds_alone_do_not_help() -> None:
    needed = known(0.03, 0.001, 0.2).needed()
    assert needed is not None
    assert needed.seeds == 3
    assert needed.clusters > 40
    assert known(0.03, 0.001, 0.2, clusters=needed.clusters).needed() == Needed(3, needed.clusters)


def test_what_no_study_decides_and_what_says_nothing_of_other_seeds() -> None:
    assert known(0.0101, 0.1, 0.02).needed() == Needed(None, 40)  # at the edge of what matters
    assert known(0.02, 0.2, 0.02).needed() == Needed(None, 40)
    assert known(0.02, 0.2, 0.02).needed(least=0.5).seeds < MOST_SEEDS
    sum_SC, targets_C = drawn(1)
    assert estimate(sum_SC, targets_C).needed() is None
    assert estimate(drawn(3)[0][:, :5], drawn(3)[1][:5]).needed() is None


def test_a_surer_statement_needs_more_seeds() -> None:
    found = known(0.06, 0.07, 0.02)
    assert found.needed(0.95).seeds < found.needed(0.99).seeds
