"""Confidence intervals of models' ranks by mean loss.

A model's rank lies between 1 + the number of significantly better models and the number of those not significantly
worse, by simultaneous intervals of its differences to all others (Mogstad, Romano, Shaikh and Wilhelm 2024). Counting
the ranks of resamples would be shorter, but wrong for close models, because every resample orders equals somehow.

Letters: M models, S seeds, C clusters, R resamples of a chunk.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from extrapolate.results.verdicts import LEAST
from extrapolate.statistics import student_t
from extrapolate.statistics.intervals import FEWEST, FEWEST_SEEDS, RESAMPLES, shared_degrees
from extrapolate.statistics.sums import ComparisonGroup, Sums

SPREAD = 1e-7  # relative to the largest effect; a smaller standard error of a difference counts as 0
CHUNK = 1 << 22  # numbers in memory at a time


class Rank(NamedTuple):
    """A model's rank by mean loss, 1 for the lowest, and the ends of its 95 % interval, None if there is none."""

    rank: int
    low: int | None
    high: int | None

    def text(self) -> str:
        """`3 [2, 5]`, or `3` without an interval."""
        return f"{self.rank}" if self.low is None else f"{self.rank} [{self.low}, {self.high}]"


def ranks_of(setting: ComparisonGroup, loss: Mapping[str, float]) -> dict[str, Rank]:
    """The ranks of models at one length by their mean losses, nats per target; those whose loss is NaN have none."""
    ranked = [model for model in setting.models if not math.isnan(loss[model])]
    found = intervals_of([setting.models[model] for model in ranked])
    ends = [(None, None)] * len(ranked) if found is None else list(zip(*(ends.tolist() for ends in found), strict=True))
    return {
        model: _with(1 + sum(loss[other] < loss[model] for other in ranked), *of_model)
        for model, of_model in zip(ranked, ends, strict=True)
    }


def _with(rank: int, low: int | None, high: int | None) -> Rank:
    """The rank in its interval, which may be over fewer seeds than the mean losses."""
    return Rank(rank, low if low is None else min(low, rank), high if high is None else max(high, rank))


def intervals_of(sums: Sequence[Sums]) -> tuple[np.ndarray, np.ndarray] | None:
    """`rank_intervals` of models with the same targets, over their shared seeds; None if there are no intervals."""
    known = [set(one.seeds) for one in sums if one.seeds]
    seeds = tuple(sorted(set.intersection(*known))) if known else ()
    if not sums or (known and not seeds):
        return None
    targets_MSC = np.stack([one.of(seeds, "n_targets") for one in sums])
    held_C = ~np.isnan(targets_MSC[0, 0])
    if (np.isnan(targets_MSC) == held_C).any():
        return None  # some lack documents, because of infinite minus infinite
    sum_MSC = np.stack([one.of(seeds, "loss")[:, held_C] for one in sums])
    return rank_intervals(sum_MSC, targets_MSC[0, 0, held_C])


def rank_intervals(
    sum_MSC: np.ndarray, targets_C: np.ndarray, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray] | None:
    """The lowest and highest rank of each model, [M] each; rank 1 has the lowest loss.

    sum_MSC: losses summed by cluster, nats, with each of the seeds that all models have; targets_C: the targets of each
    cluster. As in `intervals.estimate`, every resample draws the same clusters for all models and seeds. Intervals are
    also over seeds if there are FEWEST_SEEDS or more; otherwise they are about these runs. They are not corrected for
    the number of models. The variance over seeds is estimated from all models (`_of_seeds`).

    A difference below LEAST is never significant. A model that is infinite with every seed is worse than all finite
    ones. None if there are fewer than FEWEST clusters.
    """
    held_C = targets_C > 0
    if held_C.sum() < FEWEST:
        return None
    mean_M = sum_MSC.sum(axis=2).mean(axis=1)
    low_M, high_M = np.ones(len(mean_M), int), np.full(len(mean_M), len(mean_M))
    finite_M, lost_M = np.isfinite(mean_M), np.isinf(sum_MSC.sum(axis=2)).all(axis=1)
    low_M[lost_M] += finite_M.sum()
    high_M[finite_M] -= lost_M.sum()
    at = np.flatnonzero(finite_M)
    if len(at) > 1:
        worse_MM, better_MM = _sure(sum_MSC[at][..., held_C], targets_C[held_C], confidence, resamples, seed)
        low_M[at] += worse_MM.sum(axis=1)
        high_M[at] -= better_MM.sum(axis=1)
    return low_M, high_M


def _sure(
    sum_MSC: np.ndarray, targets_C: np.ndarray, confidence: float, resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Whether the first of two models is significantly worse, and significantly better, [M, M].

    For each model, all statements about its differences to the others hold at once.
    """
    models, seeds, count = sum_MSC.shape
    share_C = targets_C / targets_C.sum()
    effect_MC = sum_MSC.mean(axis=1) / targets_C
    effect_MC = effect_MC - effect_MC.mean(axis=0)  # keeps differences, and rounds them less
    mean_M = effect_MC @ share_C
    difference_MM = mean_M[:, None] - mean_M[None, :]
    least = SPREAD * max(float(abs(effect_MC).max()), np.finfo(float).tiny)
    error_MM = _errors(effect_MC[None], share_C)[0]
    error_MM[error_MM <= least] = 0.0
    centred_MC = effect_MC - effect_MC.mean(axis=1, keepdims=True)
    drawn_RC = np.random.default_rng(seed).integers(0, count, (resamples, count))
    most_RM, fewest_RM = np.empty((resamples, models)), np.empty((resamples, models))
    step = max(1, CHUNK // (models * max(models, count)))
    for first in range(0, resamples, step):
        effect_RMC = centred_MC[:, drawn_RC[first : first + step]].swapaxes(0, 1)
        mean_RM = effect_RMC @ share_C
        error_RMM = _errors(effect_RMC, share_C)
        usable_RMM = (error_RMM > least) & (error_MM > 0)  # no spread if one effect was drawn for all clusters
        deviation_RMM = np.where(
            usable_RMM, (mean_RM[:, :, None] - mean_RM[:, None, :]) / np.where(usable_RMM, error_RMM, 1.0), 0.0
        )
        most_RM[first : first + step] = deviation_RMM.max(axis=2)
        fewest_RM[first : first + step] = deviation_RMM.min(axis=2)
    above_M = np.quantile(most_RM, (1 + confidence) / 2, axis=0)
    below_M = -np.quantile(fewest_RM, (1 - confidence) / 2, axis=0)
    tail = (1 - confidence) / 2 / (models - 1)
    of_seeds_MM = _of_seeds(sum_MSC.sum(axis=2) / targets_C.sum(), tail) if seeds >= FEWEST_SEEDS else 0.0
    matters_MM = abs(difference_MM) >= LEAST
    worse_MM = matters_MM & (difference_MM > np.hypot(above_M[:, None] * error_MM, of_seeds_MM))
    better_MM = matters_MM & (-difference_MM > np.hypot(below_M[:, None] * error_MM, of_seeds_MM))
    return worse_MM, better_MM


def _of_seeds(mean_MS: np.ndarray, tail: float) -> np.ndarray:
    """The distance that a difference of means over seeds exceeds by chance, with probability `tail` per side, [M, M].

    Three seeds say little about the variance of a single difference: corrected for 48 other models, Student's t is 43.
    So each model's variance is averaged with the mean variance of all models (`shared_degrees`). A variance is that of
    the losses minus the means of models and seeds, with Welch's degrees of freedom. With two models this is the paired
    t test.
    """
    models, seeds = mean_MS.shape
    rest_MS = mean_MS - mean_MS.mean(axis=1, keepdims=True) - mean_MS.mean(axis=0) + mean_MS.mean()
    own = (seeds - 1) * (models - 1) / models
    shared = shared_degrees(models - 1)
    squares_M = (rest_MS**2).sum(axis=1)
    variance_M = (squares_M + shared * squares_M.mean() / own) / (own + shared)
    variance_MM = variance_M[:, None] + variance_M
    square_MM = variance_M[:, None] ** 2 + variance_M**2
    freedom_MM = np.divide(variance_MM**2, square_MM, out=np.ones_like(square_MM), where=square_MM > 0) * (own + shared)
    t_MM = np.vectorize(student_t.quantile)(tail, freedom_MM)
    return t_MM * np.sqrt(variance_MM / seeds)


def _errors(effect_RMC: np.ndarray, share_C: np.ndarray) -> np.ndarray:
    """The standard errors of differences of means, [R, M, M], as `intervals.standard_error` defines them."""
    residual_RMC = effect_RMC - (effect_RMC @ share_C)[..., None]
    product_RMM = (residual_RMC * (share_C**2 / (1 - share_C))) @ residual_RMC.swapaxes(1, 2)
    own_RM = np.diagonal(product_RMM, axis1=1, axis2=2)
    return np.sqrt(np.maximum(0.0, own_RM[:, :, None] + own_RM[:, None, :] - 2 * product_RMM))
