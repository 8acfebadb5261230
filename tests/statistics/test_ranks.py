"""The intervals of ranks."""

import math

import numpy as np
import pytest

from extrapolate.statistics import student_t
from extrapolate.statistics.intervals import estimate
from extrapolate.statistics.ranks import _of_seeds, rank_intervals


def sums(means, seeds=1, documents=30, own=0.05, rng=0):
    """Sums of losses, [M, S, C], and targets, [C]: documents differ alike for all models, and a little for each."""
    draw = np.random.default_rng(rng)
    targets_C = np.ceil(np.exp(draw.normal(6, 0.7, documents)))
    effect_MSC = np.array(means)[:, None, None] + draw.normal(0, 0.5, documents)
    effect_MSC = effect_MSC + own * draw.normal(0, 1, (len(means), 1, documents))
    between_seeds = 0.01 if seeds > 1 else 0.0  # of one seed, the truth is that of these runs
    return targets_C * (effect_MSC + between_seeds * draw.normal(0, 1, (len(means), seeds, 1))), targets_C


def intervals(sum_MSC, targets_C, **named):
    found = rank_intervals(sum_MSC, targets_C, **named)
    assert found is not None
    return [(int(low), int(high)) for low, high in zip(*found, strict=True)]


@pytest.mark.parametrize("seeds", [1, 3])
def test_of_two_models_one_is_first_where_their_difference_is_sure(seeds):
    """To the last digit: by the same draws as `estimate`."""
    sum_MSC, targets_C = sums([4.0, 4.0], seeds)
    found = estimate(sum_MSC[0] - sum_MSC[1], targets_C).interval()
    for edge, inside in ((found.low, -1), (found.high, 1)):
        for step in (-1e-6, 1e-6):
            moved = sum_MSC - np.array([edge + step, 0.0])[:, None, None] * targets_C
            verdict = estimate(moved[0] - moved[1], targets_C).interval().verdict()
            assert (verdict == "undecided") == (step * inside < 0)
            expected = {"undecided": [(1, 2), (1, 2)], "better": [(1, 1), (2, 2)], "worse": [(2, 2), (1, 1)]}[verdict]
            assert intervals(moved, targets_C) == expected


def test_models_far_apart_have_one_rank_and_equal_ones_share_theirs():
    sum_MSC, targets_C = sums([4.2, 4.0, 4.0, 4.6])
    assert intervals(sum_MSC, targets_C) == [(3, 3), (1, 2), (1, 2), (4, 4)]
    order = [2, 0, 3, 1]
    assert intervals(sum_MSC[order], targets_C) == [(1, 2), (3, 3), (4, 4), (1, 2)]
    few = rank_intervals(sum_MSC[..., :9], targets_C[:9])
    assert few is None


def test_the_same_losses_and_a_difference_that_is_the_same_everywhere():
    sum_MSC, targets_C = sums([4.0])
    both = np.concatenate([sum_MSC, sum_MSC, sum_MSC + 0.02 * targets_C, sum_MSC + 0.005 * targets_C])
    assert intervals(both, targets_C) == [(1, 3), (1, 3), (4, 4), (1, 3)]


def test_infinite_losses():
    """With every seed: surely last. With some: nothing is known of it."""
    sum_MSC, targets_C = sums([4.0, 4.5, 4.0], seeds=3)
    sum_MSC[2, :, 0] = math.inf
    assert intervals(sum_MSC, targets_C) == [(1, 1), (2, 2), (3, 3)]
    sum_MSC[2, 0, 0] = 0.0
    assert intervals(sum_MSC, targets_C) == [(1, 2), (2, 3), (1, 3)]


def test_chunks_of_resamples_change_nothing(monkeypatch):
    sum_MSC, targets_C = sums([4.0, 4.01, 4.02, 4.03])
    whole = intervals(sum_MSC, targets_C)
    monkeypatch.setattr("extrapolate.statistics.ranks.CHUNK", 1000)
    assert intervals(sum_MSC, targets_C) == whole


@pytest.mark.parametrize(("errors", "of_three"), [(5.0, [(1, 2), (1, 2), (3, 3)]), (6.5, [(1, 1), (2, 2), (3, 3)])])
def test_the_part_over_seeds_is_corrected_for_the_number_of_other_models(errors, of_three):
    """Of two degrees of freedom, Student's t is 4.303 at 97.5 %, for one other model, and 6.205 at 98.75 %, for two."""
    targets_C = np.full(30, 100.0)
    off_S = np.array([-0.01, 0.0, 0.01])  # of the seeds: a standard error of 0.01 / 3**0.5
    means_MS = np.stack([np.full(3, 4.0), 4.0 + errors * 0.01 / 3**0.5 + off_S, np.full(3, 9.0)])
    sum_MSC = means_MS[:, :, None] * targets_C
    assert intervals(sum_MSC, targets_C) == of_three
    assert intervals(sum_MSC[:2], targets_C) == [(1, 1), (2, 2)]


def test_a_variance_is_averaged_with_that_of_all_models():
    """By loops, and with Student's density integrated, for degrees of freedom that are not whole."""
    mean_MS = np.random.default_rng(3).normal(4.0, [[0.01], [0.02], [0.01], [0.3], [0.05]], (5, 4))
    rest = [[x - row.mean() - mean_MS[:, s].mean() + mean_MS.mean() for s, x in enumerate(row)] for row in mean_MS]
    own, shared = 3 * 4 / 5, 3 / 24
    variances = [sum(x * x for x in row) / own for row in rest]
    moderated = [(own * v + shared * sum(variances) / 5) / (own + shared) for v in variances]
    t = np.linspace(0.0, 400.0, 4_000_001)
    found = _of_seeds(mean_MS, 0.005)
    for a, first in enumerate(moderated):
        for b, second in enumerate(moderated):
            freedom = (own + shared) * (first + second) ** 2 / (first**2 + second**2)
            log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
            within = np.cumsum(np.exp(log) * (1 + t * t / freedom) ** (-(freedom + 1) / 2)) * (t[1] - t[0])
            reach = t[np.searchsorted(within, 0.5 - 0.005)] * math.sqrt((first + second) / 4)
            assert reach * 0.999 < found[a, b] < reach * 1.04


def test_with_many_models_three_seeds_show_a_difference():
    """Of 26 models that vary alike: 16 standard errors are too few for Student's t over 25 others, which is 31."""
    targets_C = np.full(30, 100.0)
    offs_MS = np.random.default_rng(0).permuted(np.tile([-0.01, 0.0, 0.01], (26, 1)), axis=1)
    means_MS = offs_MS + np.repeat([4.0, 4.0 + 16 * 0.01 * (2 / 3) ** 0.5], 13)[:, None]
    assert intervals(means_MS[:, :, None] * targets_C, targets_C) == [(1, 13)] * 13 + [(14, 26)] * 13
    means_MS[0] = [3.9, 4.0, 4.1]  # ten times as much: nothing is known of this one, and the others keep their places
    found = intervals(means_MS[:, :, None] * targets_C, targets_C)
    assert found == [(1, 26)] + [(1, 13)] * 12 + [(13, 26)] * 13


def test_no_number_of_models_counts_for_more_than_two_degrees_of_freedom():
    """Of three seeds, a model that alone varies is then hidden by at most half."""
    means_MS = np.full((500, 3), 4.0)
    means_MS[0] = [3.0, 4.0, 5.0]
    variance, freedom = 2.0 / (2 * 499 / 500) / 2, 4
    found = _of_seeds(means_MS, 0.025)[0, 1] / math.sqrt(variance / 3)
    assert found == pytest.approx(student_t.quantile(0.025, freedom), rel=0.02)


def test_two_seeds_say_nothing_of_others():
    """Their means alone count: Student's t with one degree of freedom would say nothing."""
    targets_C = np.full(30, 100.0)
    means_MS = np.array([[4.0, 4.2], [4.4, 4.2]])
    sum_MSC = means_MS[:, :, None] * targets_C
    assert intervals(sum_MSC, targets_C) == [(1, 1), (2, 2)]
    assert intervals(np.repeat(sum_MSC, 2, axis=1), targets_C) == [(1, 2), (1, 2)]
