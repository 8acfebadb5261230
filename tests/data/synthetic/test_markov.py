"""The optimum of Markov chains against slow references, and the chains themselves."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from extrapolate.data.synthetic.base import parse_process
from extrapolate.data.synthetic.markov import Markov


def test_the_optimum_is_the_urn_of_every_row() -> None:
    """In fractions, token by token: so many of j after i, and the prior's weight, of all after i."""
    process = Markov(states=3, concentration=0.5, documents=3, length=50)
    tokens = np.random.default_rng(0).integers(0, 3, (4, 20))
    for window, found in zip(tokens.tolist(), process.optimum(tokens), strict=True):
        for t in range(1, len(window)):
            pairs = list(pairwise(window[:t]))
            after = [b for a, b in pairs if a == window[t - 1]]
            p = (after.count(window[t]) + Fraction(1, 2)) / (len(after) + Fraction(3, 2))
            assert found[t - 1] == pytest.approx(-math.log(p), abs=1e-12)


def test_it_is_the_mean_over_posterior_chains() -> None:
    """By sampling: chains from the prior, weighed by how well they explain what came before."""
    process = Markov(states=2, concentration=0.7, documents=3, length=50)
    rng = np.random.default_rng(0)
    rows = rng.dirichlet([0.7, 0.7], size=(400_000, 2))
    window = [0, 1, 1, 0, 1, 0, 0]
    found = process.optimum(np.array([window]))[0]
    weight = np.ones(len(rows))
    for t in range(1, len(window)):
        p = rows[:, window[t - 1], window[t]]
        assert found[t - 1] == pytest.approx(-math.log((weight * p).sum() / weight.sum()), abs=0.01)
        weight *= p


def test_the_published_decline() -> None:
    """16 states, concentration 0.3: about 2.55 nats a token over windows of 64, about 2.06 over 1024."""
    process = parse_process("markov:states=16,concentration=0.3")
    documents = process.draw(np.random.default_rng(0), 64)
    mean = {n: process.optimum(documents[:, : n + 1]).mean() for n in (64, 1024)}
    assert mean[64] == pytest.approx(2.55, abs=0.03)
    assert mean[1024] == pytest.approx(2.06, abs=0.03)


def test_no_other_prior_predicts_better() -> None:
    documents = Markov().draw(np.random.default_rng(0), 64)[:, :257]
    best = Markov().optimum(documents).mean(axis=1)
    for other in (0.1, 0.9):
        worse = Markov(concentration=other).optimum(documents).mean(axis=1) - best
        assert worse.mean() > 4 * worse.std() / 8


def test_chains_differ_between_documents_and_follow_their_rows() -> None:
    documents = Markov(states=4, length=4000).draw(np.random.default_rng(0), 2)
    counts = np.zeros((2, 4, 4))
    for d in range(2):
        np.add.at(counts[d], (documents[d, :-1], documents[d, 1:]), 1)
    rows = counts / counts.sum(axis=-1, keepdims=True)
    assert np.abs(rows[0] - rows[1]).max() > 0.2
    halves = [np.zeros((4, 4)), np.zeros((4, 4))]
    for half, part in zip(halves, np.split(documents[0], 2), strict=True):
        np.add.at(half, (part[:-1], part[1:]), 1)
    often = counts[0].sum(axis=1) > 400
    first, second = (half[often] / half[often].sum(axis=-1, keepdims=True) for half in halves)
    assert np.abs(first - second).max() < 0.12
