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


def test_the_published_decline() -> None:
    """16 states, concentration 0.3: about 2.55 nats a token over windows of 64, about 2.06 over 1024."""
    process = parse_process("markov:states=16,concentration=0.3")
    documents = process.draw(np.random.default_rng(0), 64)
    mean = {n: process.optimum(documents[:, : n + 1]).mean() for n in (64, 1024)}
    assert mean[64] == pytest.approx(2.55, abs=0.03)
    assert mean[1024] == pytest.approx(2.06, abs=0.03)
