"""Confidence intervals of differences in loss, over clusters of targets and over seeds, and their verdicts.

A cluster is an independent draw: a document, or a stretch of one. Losses within a cluster are correlated, so clusters
are resampled rather than targets. The design is crossed: all seeds of a model see the same clusters.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import NormalDist

import numpy as np

from extrapolate.errors import UserError
from extrapolate.results.verdicts import BETTER, EQUIVALENT, LEAST, TOO_FEW, UNDECIDED, WORSE, Verdict
from extrapolate.statistics import student_t

RESAMPLES = 2000
FEWEST = 10  # clusters, for an interval
ROUNDING = 1e-12  # relative to the largest effect; a smaller spread is only rounding
AT_ONCE = 512  # buckets whose resamples are in memory at a time
TAIL = 0.005  # smaller tails are extrapolated from the resamples
SMALLEST = 1e-10  # the smallest p value reported
_SPACING = 1e-10  # the tolerance of p values, in normal deviations
POWER = 0.8  # how often a study of the advised size decides
MOST_SEEDS = 100  # to advise
FEWEST_SEEDS = 3  # with two, Student's t is three times as wide
# The mean variance over seeds counts as 1 degree of freedom per COMPARISONS_PER_DEGREE others, at most MOST_DEGREES.
COMPARISONS_PER_DEGREE, MOST_DEGREES = 24, 2.0


@dataclass(frozen=True)
class Interval:
    """A mean over all targets, nats, with the ends of its confidence interval; None if there is no interval."""

    mean: float
    low: float | None
    high: float | None
    clusters: int

    def verdict(self, least: float = LEAST) -> Verdict:
        """The verdict on a difference in loss; negative is better. least: the least difference that matters, nats."""
        if math.isinf(self.mean):
            return BETTER if self.mean < 0 else WORSE
        if self.low is None or self.high is None:
            return TOO_FEW
        if -least < self.low and self.high < least:
            return EQUIVALENT
        if abs(self.mean) < least:
            return UNDECIDED
        return BETTER if self.high < 0 else WORSE if self.low > 0 else UNDECIDED

    def text(self) -> str:
        """`+0.021 [+0.013, +0.030]`, nats."""
        if not math.isfinite(self.mean):
            return f"{self.mean:+}"
        if self.low is None or self.high is None:
            return f"{self.mean:+.3f} too few"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True)
class Needed:
    """The size of a study that decides a difference like the observed one, with probability POWER.

    seeds: None if more than MOST_SEEDS; clusters: at least the present number. Both are rough, because a few seeds say
    little about the spread between seeds.
    """

    seeds: int | None
    clusters: int


@dataclass(frozen=True)
class Estimate:
    """A mean over targets, nats, and its uncertainty over clusters and seeds.

    clusters: how many were resampled. error: the standard error over clusters, nats; None if unknown.
    deviation_R: the resamples' deviations, each divided by its own standard error, in ascending order. by_seed: each
    seed's mean, nats. shared_variance, nats^2, is averaged with the variance of these, as if it had `shared` degrees of
    freedom (`judged_together`).
    """

    mean: float
    clusters: int
    error: float | None
    deviation_R: np.ndarray
    by_seed: tuple[float, ...]
    shared: float = 0.0
    shared_variance: float = 0.0

    def interval(self, confidence: float = 0.95) -> Interval:
        """The interval of the true mean over documents, and also over seeds if there are two or more.

        Each end is sqrt(documents^2 + seeds^2) from the mean. `documents` is the distance from a studentised bootstrap
        with the seeds averaged. `seeds` is that from Student's t over the seeds' means, with one degree of freedom less
        than seeds, plus `shared`. Such an interval of two normal errors with estimated sizes covers the truth at least
        as often as claimed, at any ratio of the two (Banerjee 1960). The spread of the seeds' means includes
        differences between documents that depend on the seed. That part is in both terms, which can only make the
        interval wider. With one seed, the interval is about these weights only.
        """
        if self.error is None:
            return Interval(self.mean, None, None, self.clusters)
        tail = (1 - confidence) / 2
        low, high = (self.mean - side * self._reach(tail, side) for side in (1, -1))
        return Interval(self.mean, low, high, self.clusters)

    def p(self) -> float | None:
        """The smallest 1 - confidence at which the interval excludes zero; None if there is no interval."""
        if self.error is None:
            return None
        side, away = (1, self.mean) if self.mean > 0 else (-1, -self.mean)
        if away > self._reach(SMALLEST / 2, side):
            return SMALLEST
        # In normal deviations, in which the reach is almost linear.
        return 2 * _NORMAL.cdf(-_root(lambda z: away - self._reach(_NORMAL.cdf(-z), side), 0.0, _MOST))

    def needed(self, confidence: float = 0.95, least: float = LEAST) -> Needed | None:
        """The study that would decide this, if the true difference and spreads are as observed.

        A difference of `least` nats or more is decided if shown to be better or worse, a smaller one if shown to be
        equivalent. Documents cost an evaluation, but seeds a training. So clusters are doubled until at most twice the
        seeds of a study with unlimited clusters are needed. None if there is no interval, or only one seed.
        """
        if self.error is None or len(self.by_seed) < 2:
            return None
        tail = (1 - confidence) / 2
        counts = range(max(FEWEST_SEEDS, len(self.by_seed)), MOST_SEEDS + 1)

        def fewest(times: float) -> int | None:
            at = bisect_left(counts, True, key=lambda seeds: self._power(seeds, times, tail, least) >= POWER)
            return counts[at] if at < len(counts) else None

        of_seeds = fewest(math.inf)
        if of_seeds is None:
            return Needed(None, self.clusters)
        times = 1
        while (seeds := fewest(times)) is None or seeds > max(counts[0], 2 * of_seeds):
            times *= 2
        return Needed(seeds, times * self.clusters)

    def _power(self, seeds: int, times: float, tail: float, least: float) -> float:
        """How often a study with `seeds` seeds and `times` as many clusters decides, if the spreads are known."""
        assert self.error is not None
        documents, of_mean = self.error / math.sqrt(times), self.seed_error * math.sqrt(len(self.by_seed) / seeds)
        reach = math.hypot(
            max(self._deviation(tail, side) for side in (1, -1)) * documents,
            student_t.quantile(tail, seeds - 1 + self.shared) * of_mean if of_mean else 0.0,
        )
        error = math.hypot(documents, of_mean) or math.ulp(0.0)
        away, room = abs(self.mean), least - reach
        if away >= least:
            return _NORMAL.cdf((away - max(reach, least)) / error)
        return max(0.0, _NORMAL.cdf((room - away) / error) - _NORMAL.cdf((-room - away) / error))

    def of_these_runs(self) -> "Estimate":
        """The estimate as if the seeds' mean were one seed: its intervals are only over documents."""
        return replace(self, by_seed=(self.mean,))

    @cached_property
    def seed_error(self) -> float:
        """The standard error of the mean of the seeds' means, nats; 0 for a single seed."""
        count = len(self.by_seed)
        if count < 2:
            return 0.0
        squares = (count - 1) * self.seed_variance + self.shared * self.shared_variance
        return math.sqrt(squares / (count - 1 + self.shared) / count)

    @property
    def seed_variance(self) -> float:
        """The variance of the seeds' means, nats^2; needs at least two."""
        return float(np.var(self.by_seed, ddof=1))

    def _reach(self, tail: float, side: int) -> float:
        """The distance of an interval's lower (side 1) or upper (side -1) end from the mean, nats."""
        assert self.error is not None
        documents = max(0.0, self._deviation(tail, side)) * self.error
        seeds = (
            student_t.quantile(tail, len(self.by_seed) - 1 + self.shared) * self.seed_error if self.seed_error else 0.0
        )
        return math.hypot(documents, seeds)

    def _deviation(self, tail: float, side: int) -> float:
        """The deviation exceeded with probability `tail`, extrapolated beyond TAIL by Student's t."""
        if not len(self.deviation_R):
            return 0.0
        if tail < TAIL:
            freedom = min(self.clusters - 1, 100)
            return self._deviation(TAIL, side) * student_t.quantile(tail, freedom) / student_t.quantile(TAIL, freedom)
        at = (tail if side < 0 else 1 - tail) * (len(self.deviation_R) - 1)
        below, share = math.floor(at), at % 1
        above = min(below + 1, len(self.deviation_R) - 1)
        return side * float((1 - share) * self.deviation_R[below] + share * self.deviation_R[above])


_NORMAL = NormalDist()
_MOST = -_NORMAL.inv_cdf(SMALLEST / 2)


def shared_degrees(comparisons: int) -> float:
    """The degrees of freedom for which the mean variance over seeds of `comparisons` counts in each of them.

    Smyth (2004) estimates this weight. Here it is fixed and small, because some models may vary far more than others.
    """
    return min(MOST_DEGREES, (comparisons - 1) / COMPARISONS_PER_DEGREE)


def judged_together(found: Sequence[Estimate]) -> list[Estimate]:
    """Averages each variance over seeds with the mean of all, because three seeds alone say little.

    Use it for differences of one kind, such as those of many models from one, but not if some inherently vary far less
    than others. Estimates with fewer than FEWEST_SEEDS seeds are unchanged.
    """
    varies = [one.error is not None and len(one.by_seed) >= FEWEST_SEEDS for one in found]
    variances = [one.seed_variance for one, yes in zip(found, varies, strict=True) if yes]
    if not variances:
        return list(found)
    mean, shared = math.fsum(variances) / len(variances), shared_degrees(len(variances))
    return [
        replace(one, shared=shared, shared_variance=mean) if yes else one
        for one, yes in zip(found, varies, strict=True)
    ]


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """The root of a falling function that is negative at `high`: regula falsi with the Illinois rule.

    It needs few evaluations, each with a quantile of Student's t. Returns `low` if the function is not positive there,
    or falls without bound.
    """
    above, below, side = falling(low), falling(high), 0
    if not (above > 0 and math.isfinite(below)):
        return low
    while high - low > _SPACING:
        middle = (low * below - high * above) / (below - above)
        middle = min(max(middle, low + _SPACING / 2), high - _SPACING / 2)
        value = falling(middle)
        if value > 0:
            low, above, below, side = middle, value, below / 2 if side > 0 else below, 1
        else:
            high, below, above, side = middle, value, above / 2 if side < 0 else above, -1
    return low


@lru_cache(maxsize=4)  # the comparisons of a report have a few different numbers of clusters
def _draws(resamples: int, count: int, seed: int) -> np.ndarray:
    """The clusters drawn by each resample, [resamples, count]."""
    drawn_RC = np.random.default_rng(seed).integers(0, count, (resamples, count))
    drawn_RC.flags.writeable = False
    return drawn_RC


def estimate(sum_SC: np.ndarray, targets_C: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Estimates the mean over targets and seeds of a quantity summed by cluster.

    sum_SC holds each cluster's sum (nats) with each seed, [seeds, clusters]; targets_C its number of targets,
    [clusters], the same for every seed. Clusters without targets are ignored. For a difference between two models, the
    sums are differences on the same targets between runs with the same seed.

    The mean is that of the clusters' effects, sum / targets, each weighted by its share of the targets. A resample
    keeps the sizes of clusters and gives each the effect of one drawn with replacement, the same for all seeds (Efron
    and Tibshirani 1993, chapter 9), so every resample shows if a few long documents dominate the mean. Each resample's
    deviation is divided by its own standard error, so that intervals are as skewed as the effects (chapter 12). The
    standard error allows the spread of effects to depend on size; the draws do not. There is no interval below FEWEST
    clusters, or of an infinite mean. Raises UserError if there are no targets.
    """
    held_C = targets_C > 0
    if not held_C.any():
        raise UserError("there are no targets to average over")
    by_seed = tuple(float(total) for total in sum_SC.sum(axis=1) / targets_C.sum())
    sum_C, targets_C = sum_SC.mean(axis=0)[held_C], targets_C[held_C]
    effect_C, share_C = sum_C / targets_C, targets_C / targets_C.sum()
    mean, count, none = float(sum_C.sum() / targets_C.sum()), len(effect_C), np.zeros(0)
    if count < FEWEST or not math.isfinite(mean):
        return Estimate(mean, count, None, none, by_seed)
    error = float(standard_error(effect_C, share_C))
    if error <= ROUNDING * abs(effect_C).max():
        return Estimate(mean, count, 0.0, none, by_seed)
    drawn_RC = _draws(resamples, count, seed)
    effect_RC = (effect_C - effect_C.mean())[drawn_RC]
    error_R = standard_error(effect_RC, share_C)
    usable_R = error_R > ROUNDING * abs(effect_C).max()  # no spread if one effect was drawn for all clusters
    deviation_R = np.sort((effect_RC @ share_C)[usable_R] / error_R[usable_R])
    return Estimate(mean, count, error, deviation_R, by_seed)


def interval(
    sum_C: np.ndarray, targets_C: np.ndarray, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The interval of `estimate` for one seed, with the sums sum_C, [clusters]."""
    return estimate(sum_C[None], targets_C, resamples=resamples, seed=seed).interval(confidence)


def holm(p: Sequence[float]) -> list[float]:
    """Adjusts p values for their number (Holm 1979), so that each can be compared with the same bound, such as 0.05.

    The probability that any null difference falls below the bound is then at most the bound.
    """
    adjusted, most = [1.0] * len(p), 0.0
    for rank, at in enumerate(sorted(range(len(p)), key=lambda at: p[at])):
        most = max(most, (len(p) - rank) * p[at])
        adjusted[at] = min(1.0, most)
    return adjusted


@dataclass(frozen=True)
class Band:
    """Means over targets in several buckets, nats, [B], and a simultaneous band; None if there are too few clusters."""

    mean_B: np.ndarray
    low_B: np.ndarray | None
    high_B: np.ndarray | None
    clusters: int


def band(
    sum_CB: np.ndarray, targets_CB: np.ndarray, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Band:
    """Like `interval` for many buckets: with the given confidence, the band contains all true means at once.

    sum_CB holds each cluster's sum (nats) in each bucket, targets_CB its number of targets, both [clusters, buckets].
    Clusters that lack targets in some bucket are ignored. The largest studentised deviation over buckets is resampled
    (Romano and Wolf 2005), so correlated buckets cost less than independent ones. Buckets may belong to several models:
    a resample draws the same clusters for all. Raises UserError if no cluster has targets in every bucket.
    """
    held_C = (targets_CB > 0).all(axis=1)
    if not held_C.any():
        raise UserError("no cluster has targets in every bucket")
    sum_CB, targets_CB = sum_CB[held_C], targets_CB[held_C]
    mean_B = sum_CB.sum(axis=0) / targets_CB.sum(axis=0)
    count = len(sum_CB)
    if count < FEWEST:
        return Band(mean_B, None, None, count)
    effect_CB, share_CB = sum_CB / targets_CB, targets_CB / targets_CB.sum(axis=0)
    error_B = standard_error(effect_CB.T, share_CB.T)
    error_B[error_B <= ROUNDING * abs(effect_CB).max(axis=0)] = 0.0  # all clusters agree
    drawn_RC = np.random.default_rng(seed).integers(0, count, (resamples, count))
    most_R, least_R = np.full(resamples, -np.inf), np.full(resamples, np.inf)
    _, alike_B = np.unique(share_CB.round(12), axis=1, return_inverse=True)
    for alike in np.unique(alike_B):
        group = np.flatnonzero((alike_B == alike) & (error_B > 0))
        for some in np.split(group, range(AT_ONCE, len(group), AT_ONCE)) if len(group) else []:
            deviation_RB = _deviations(effect_CB[:, some], share_CB[:, some[0]], drawn_RC)
            most_R = np.maximum(most_R, deviation_RB.max(axis=1))
            least_R = np.minimum(least_R, deviation_RB.min(axis=1))
    if not error_B.any():
        return Band(mean_B, mean_B, mean_B, count)
    above, below = np.quantile(most_R, (1 + confidence) / 2), np.quantile(least_R, (1 - confidence) / 2)
    return Band(mean_B, mean_B - above * error_B, mean_B - below * error_B, count)


def _deviations(effect_CB: np.ndarray, share_C: np.ndarray, drawn_RC: np.ndarray) -> np.ndarray:
    """Each resample's deviation from the mean in each bucket, divided by its own standard error, [R, B].

    The same as in `estimate`, computed as products for all buckets with the same shares: a resample's sum over clusters
    is a sum over effects, weighted by the shares of the clusters that drew them. 0 if a resample has no spread.
    """
    count = drawn_RC.shape[1]
    at_RC = np.arange(len(drawn_RC))[:, None] * count + drawn_RC

    def drawn(weight_C: np.ndarray) -> np.ndarray:
        weights = np.broadcast_to(weight_C, drawn_RC.shape)
        return np.bincount(at_RC.ravel(), weights.ravel(), drawn_RC.size).reshape(drawn_RC.shape)

    centred_CB = effect_CB - effect_CB.mean(axis=0)
    weight_C = share_C**2 / (1 - share_C)  # see `standard_error`
    mean_RB, weight_RC = drawn(share_C) @ centred_CB, drawn(weight_C)
    variance_RB = weight_RC @ centred_CB**2 - mean_RB * (2 * (weight_RC @ centred_CB) - mean_RB * weight_C.sum())
    spread_RB = variance_RB > ROUNDING * (centred_CB**2).max(axis=0)
    return np.where(spread_RB, mean_RB, 0.0) / np.sqrt(np.where(spread_RB, variance_RB, 1.0))


def standard_error(effect_C: np.ndarray, share_C: np.ndarray) -> np.ndarray:
    """The standard error of a mean of effects weighted by shares that add up to 1.

    Clusters are the last axis; the others broadcast. A cluster pulls the mean towards itself by its share, which makes
    its residual too small, so squares are divided by 1 - share (HC2 with clusters: Bell and McCaffrey 2002). With equal
    shares, it is the usual standard error.
    """
    mean = (effect_C * share_C).sum(axis=-1, keepdims=True)
    return np.sqrt((share_C**2 / (1 - share_C) * (effect_C - mean) ** 2).sum(axis=-1))


def wilson(accuracy: float, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of independent trials (Wilson 1927).

    If trials are themselves shares of answers, the interval is wider than necessary.
    """
    centre = (accuracy + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z * math.sqrt(accuracy * (1 - accuracy) / trials + z**2 / (4 * trials**2)) / (1 + z**2 / trials)
    return max(0.0, centre - half), min(1.0, centre + half)
