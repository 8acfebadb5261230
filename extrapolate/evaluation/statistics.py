"""How sure a difference in loss is: intervals over clusters of targets, and what they allow to be said.

A cluster is what was drawn independently: a document, or a stretch of one. Losses within it go up and down together, so
that clusters, and not targets, are resampled.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

RESAMPLES = 2000
FEWEST = 10  # clusters that an interval is given for at all

Verdict = Literal["win", "tie", "loss", "too few"]


@dataclass(frozen=True)
class Interval:
    """A mean over all targets, nats, and where it lies with some confidence; None where nothing can be said."""

    mean: float
    low: float | None
    high: float | None
    clusters: int

    def verdict(self) -> Verdict:
        """For a difference in loss: below zero is a win. A win is called only where the interval excludes zero."""
        if self.low is None or self.high is None:
            return "too few"
        return "win" if self.high < 0 else "loss" if self.low > 0 else "tie"

    def text(self) -> str:
        """`+0.021 [+0.013, +0.030]`, nats."""
        if self.low is None or self.high is None:
            return f"{self.mean:+.3f} too few"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def interval(
    sum_C: np.ndarray, targets_C: np.ndarray, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The mean over targets of a quantity summed by cluster, and its studentised bootstrap interval.

    sum_C holds each cluster's sum (nats), targets_C its targets, both [clusters]. The mean is a ratio of two sums,
    and clusters differ in size: each resample's deviation is divided by its own standard error, from the ratio's
    linearisation, which makes intervals as skewed as the data are (Efron and Tibshirani 1993, chapter 12). Below FEWEST
    clusters there is no interval. Raises ValueError where there is no target.
    """
    count, total = len(sum_C), targets_C.sum()
    if not total > 0:
        raise ValueError("there are no targets to average over")
    mean = float(sum_C.sum() / total)
    if count < FEWEST:
        return Interval(mean, None, None, count)
    error = float(_standard_error(np.ones((1, count)), sum_C, targets_C)[0])
    if error == 0:
        return Interval(mean, mean, mean, count)
    rng = np.random.default_rng(seed)
    times_RC = rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
    mean_R = (times_RC @ sum_C) / (times_RC @ targets_C)
    error_R = _standard_error(times_RC, sum_C, targets_C)
    usable = error_R > 0  # a resample of one cluster alone has no spread
    deviation_R = (mean_R[usable] - mean) / error_R[usable]
    below, above = np.quantile(deviation_R, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean, mean - float(above) * error, mean - float(below) * error, count)


@dataclass(frozen=True)
class Band:
    """Means over targets in each of several buckets, nats, [B], and a band that holds all the true ones at once.

    The band is None where there are too few clusters.
    """

    mean_B: np.ndarray
    low_B: np.ndarray | None
    high_B: np.ndarray | None
    clusters: int


def band(
    sum_CB: np.ndarray, targets_CB: np.ndarray, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Band:
    """As `interval`, for many buckets at once: with the confidence given, no bucket's truth lies outside.

    sum_CB holds each cluster's sum (nats) in each bucket, targets_CB its targets, both [clusters, buckets]. The
    largest studentised deviation over buckets is what is resampled (Romano and Wolf 2005), so that buckets that go up
    and down together cost less than so many independent ones.
    """
    count = len(sum_CB)
    mean_B = sum_CB.sum(axis=0) / targets_CB.sum(axis=0)
    if count < FEWEST:
        return Band(mean_B, None, None, count)
    error_B = _errors(np.ones((1, count)), sum_CB, targets_CB)[0]
    varied = error_B > 0  # elsewhere every cluster says the same
    low_B, high_B = mean_B.copy(), mean_B.copy()
    if not varied.any():
        return Band(mean_B, low_B, high_B, count)
    sum_CB, targets_CB = sum_CB[:, varied], targets_CB[:, varied]
    rng = np.random.default_rng(seed)
    times_RC = rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
    error_RB = _errors(times_RC, sum_CB, targets_CB)
    usable = (error_RB > 0).all(axis=1)
    mean_RB = (times_RC @ sum_CB) / (times_RC @ targets_CB)
    deviation_RB = (mean_RB[usable] - mean_B[varied]) / error_RB[usable]
    above = np.quantile(deviation_RB.max(axis=1), (1 + confidence) / 2)
    below = np.quantile(deviation_RB.min(axis=1), (1 - confidence) / 2)
    low_B[varied] -= above * error_B[varied]
    high_B[varied] -= below * error_B[varied]
    return Band(mean_B, low_B, high_B, count)


def _errors(times_RC: np.ndarray, sum_CB: np.ndarray, targets_CB: np.ndarray) -> np.ndarray:
    """`_standard_error` of each bucket, [R, B]."""
    columns = zip(sum_CB.T, targets_CB.T, strict=True)
    return np.stack([_standard_error(times_RC, sum_C, targets_C) for sum_C, targets_C in columns], axis=1)


def _standard_error(times_RC: np.ndarray, sum_C: np.ndarray, targets_C: np.ndarray) -> np.ndarray:
    """Of the ratio of sums, for each resample, [R]: the spread of the clusters' residuals sum - mean targets."""
    total_R = times_RC @ targets_C
    mean_R = (times_RC @ sum_C) / total_R
    squares_R = (
        times_RC @ sum_C**2 - 2 * mean_R * (times_RC @ (sum_C * targets_C)) + mean_R**2 * (times_RC @ targets_C**2)
    )
    count = len(sum_C)
    return np.sqrt(np.maximum(squares_R, 0.0) * count / (count - 1)) / total_R
