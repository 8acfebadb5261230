"""How sure a difference in loss is: intervals over clusters of targets, and what they allow to be said.

A cluster is what was drawn independently: a document, or a stretch of one. Losses within it go up and down together, so
that clusters, and not targets, are resampled.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from extrapolate.errors import UserError

RESAMPLES = 2000
FEWEST = 10  # clusters that an interval is given for at all
ROUNDING = 1e-12  # relative to the largest effect: what is below it is no spread
LEAST = 0.001  # nats: a smaller difference is a tie, however sure it is; numerical noise alone can reach a tenth of it

Verdict = Literal["win", "tie", "loss", "too few"]


@dataclass(frozen=True)
class Interval:
    """A mean over all targets, nats, and where it lies with some confidence; None where nothing can be said."""

    mean: float
    low: float | None
    high: float | None
    clusters: int

    def verdict(self, least: float = LEAST) -> Verdict:
        """For a difference in loss: below zero is a win.

        It is a tie where the interval holds zero, or the mean is nearer to zero than `least`, nats.
        """
        if math.isinf(self.mean):
            return "win" if self.mean < 0 else "loss"
        if self.low is None or self.high is None:
            return "too few"
        if abs(self.mean) < least:
            return "tie"
        return "win" if self.high < 0 else "loss" if self.low > 0 else "tie"

    def text(self) -> str:
        """`+0.021 [+0.013, +0.030]`, nats."""
        if not math.isfinite(self.mean):
            return f"{self.mean:+}"
        if self.low is None or self.high is None:
            return f"{self.mean:+.3f} too few"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def interval(
    sum_C: np.ndarray, targets_C: np.ndarray, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The mean over targets of a quantity summed by cluster, and its studentised bootstrap interval.

    sum_C holds each cluster's sum (nats), targets_C its targets, both [clusters]; clusters without targets count for
    nothing. The mean is that of the clusters' effects, sum / targets, each weighted by its share of the targets.
    A resample leaves every cluster its size and gives it the effect of one drawn with replacement (Efron and Tibshirani
    1993, chapter 9): how few long documents decide the mean then shows in every resample. Each resample's deviation is
    divided by its own standard error, so that intervals are as skewed as the effects are (the same, chapter 12).
    The standard error itself lets the spread of effects depend on size; the draws do not.
    Below FEWEST clusters there is no interval, and none of what is infinite. Raises UserError where there is no target.
    """
    held_C = targets_C > 0
    if not held_C.any():
        raise UserError("there are no targets to average over")
    targets_C = targets_C[held_C]
    effect_C, share_C = sum_C[held_C] / targets_C, targets_C / targets_C.sum()
    mean, count = float(sum_C.sum() / targets_C.sum()), len(effect_C)
    if count < FEWEST or not math.isfinite(mean):
        return Interval(mean, None, None, count)
    error = float(standard_error(effect_C, share_C))
    if error <= ROUNDING * abs(effect_C).max():
        return Interval(mean, mean, mean, count)
    drawn_RC = np.random.default_rng(seed).integers(0, count, (resamples, count))
    effect_RC = (effect_C - effect_C.mean())[drawn_RC]
    error_R = standard_error(effect_RC, share_C)
    usable_R = error_R > ROUNDING * abs(effect_C).max()  # one effect drawn for all clusters has no spread
    deviation_R = (effect_RC @ share_C)[usable_R] / error_R[usable_R]
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

    sum_CB holds each cluster's sum (nats) in each bucket, targets_CB its targets, both [clusters, buckets]; clusters
    that lack targets in some bucket count for nothing. The furthest studentised deviation over buckets is what is
    resampled (Romano and Wolf 2005), so that buckets that go up and down together cost less than independent ones.
    Raises UserError where no cluster has targets in every bucket.
    """
    held_C = (targets_CB > 0).all(axis=1)
    if not held_C.any():
        raise UserError("no cluster has targets in every bucket")
    sum_CB, targets_CB = sum_CB[held_C], targets_CB[held_C]
    mean_B = sum_CB.sum(axis=0) / targets_CB.sum(axis=0)
    count = len(sum_CB)
    if count < FEWEST:
        return Band(mean_B, None, None, count)
    drawn_RC = np.random.default_rng(seed).integers(0, count, (resamples, count))
    errors, deviations = np.zeros(len(mean_B)), []
    for b, (effect_C, share_C) in enumerate(
        zip((sum_CB / targets_CB).T, (targets_CB / targets_CB.sum(axis=0)).T, strict=True)
    ):
        least = ROUNDING * abs(effect_C).max()
        error = float(standard_error(effect_C, share_C))
        if error <= least:
            continue  # every cluster says the same
        effect_RC = (effect_C - effect_C.mean())[drawn_RC]
        error_R = standard_error(effect_RC, share_C)
        errors[b] = error
        deviations.append(np.where(error_R > least, effect_RC @ share_C, 0.0) / np.maximum(error_R, least))
    if not deviations:
        return Band(mean_B, mean_B, mean_B, count)
    above = np.quantile(np.max(deviations, axis=0), (1 + confidence) / 2)
    below = np.quantile(np.min(deviations, axis=0), (1 - confidence) / 2)
    return Band(mean_B, mean_B - above * errors, mean_B - below * errors, count)


def standard_error(effect_C: np.ndarray, share_C: np.ndarray) -> np.ndarray:
    """Of the mean of effects weighted by shares, which add up to 1; clusters are the last axis, the rest broadcasts.

    A cluster pulls the mean towards itself by its share, which makes its residual too small: squares are divided by
    1 - share (HC2 with clusters: Bell and McCaffrey 2002). For equal shares it is the standard error of a mean.
    """
    mean = (effect_C * share_C).sum(axis=-1, keepdims=True)
    return np.sqrt((share_C**2 / (1 - share_C) * (effect_C - mean) ** 2).sum(axis=-1))
