"""The optimum of repetition against slow references, and the repetition itself."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from extrapolate.data.synthetic.echo import Echo


def test_the_optimum_weighs_every_lag() -> None:
    """The probability of each prefix is the mean over lags of a product of steps, in fractions."""
    process = Echo(states=2, shortest=1, longest=4, noise=0.25, documents=3, length=50)
    assert process.lags == [1, 2, 4]

    def prefix(window: tuple[int, ...]) -> Fraction:
        total = Fraction(0)
        for lag in (1, 2, 4):
            p = Fraction(1)
            for t, token in enumerate(window):
                same = Fraction(3, 4) * (token == window[t - lag]) if t >= lag else None
                p *= Fraction(1, 2) if same is None else same + Fraction(1, 8)
            total += p / 3
        return total

    windows = list(product((0, 1), repeat=6))
    assert sum(map(prefix, windows)) == 1
    for window, found in zip(windows, process.optimum(np.array(windows)), strict=True):
        for t in range(1, 6):
            assert found[t - 1] == pytest.approx(-math.log(prefix(window[: t + 1]) / prefix(window[:t])), abs=1e-12)


def test_a_window_no_longer_than_every_lag_holds_nothing() -> None:
    process = Echo(shortest=64, longest=128)
    documents = process.draw(np.random.default_rng(0), 8)
    assert process.optimum(documents[:, 300:364]) == pytest.approx(math.log(16))
    assert process.optimum(documents[:, 300:700])[:, -100:].mean() < 1.0


def test_documents_repeat_at_one_lag() -> None:
    process = Echo(longest=128, noise=0.1, length=4000)
    for document in process.draw(np.random.default_rng(1), 4):
        same = [np.mean(document[lag:] == document[:-lag]) for lag in process.lags]
        own = int(np.argmax(same))
        assert same[own] == pytest.approx(0.9 + 0.1 / 16, abs=0.02)
        assert np.max(same[:own], initial=0) < 0.2  # multiples of the lag repeat too
