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


def _standard_error(times_RC: np.ndarray, sum_C: np.ndarray, targets_C: np.ndarray) -> np.ndarray:
    """Of the ratio of sums, for each resample, [R]: the spread of the clusters' residuals sum - mean targets."""
    total_R = times_RC @ targets_C
    mean_R = (times_RC @ sum_C) / total_R
    squares_R = (
        times_RC @ sum_C**2 - 2 * mean_R * (times_RC @ (sum_C * targets_C)) + mean_R**2 * (times_RC @ targets_C**2)
    )
    count = len(sum_C)
    return np.sqrt(np.maximum(squares_R, 0.0) * count / (count - 1)) / total_R
