"""Fitting a constant."""

import math

import pytest

from extrapolate.evaluation.fitting import lowest


@pytest.mark.parametrize("valley", [-0.5, -0.2, 0.0, 0.31, 0.999])
def test_the_lowest_point_of_a_valley_is_found(valley: float) -> None:
    calls = []

    def function(x: float) -> float:
        calls.append(x)
        return math.cosh(x - valley)

    assert lowest(function, -0.5, 1.0, 12) == pytest.approx(valley, abs=0.01)
    assert len(calls) == 14
