"""Student's t distribution, against printed tables and itself."""

import math

import pytest

from extrapolate.statistics.student_t import beyond, quantile


@pytest.mark.parametrize(
    ("freedom", "above", "expected"),
    [
        (1, 0.025, 12.7062), (2, 0.025, 4.30265), (3, 0.025, 3.18245), (4, 0.025, 2.77645), (9, 0.025, 2.26216),
        (29, 0.025, 2.04523), (1, 0.0005, 636.619), (2, 0.0005, 31.5991), (5, 0.005, 4.03214), (60, 0.1, 1.29582),
    ],
)  # fmt: skip
def test_quantiles_of_printed_tables(freedom: int, above: float, expected: float) -> None:
    assert quantile(above, freedom) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 13, 40, 100, 301])
def test_a_quantile_is_exceeded_with_its_probability(freedom: int) -> None:
    for above in (1e-10, 1e-6, 0.001, 0.025, 0.3, 0.499):
        assert beyond(quantile(above, freedom), freedom) == pytest.approx(above, rel=1e-5)
    assert beyond(0.0, freedom) == pytest.approx(0.5)
    assert quantile(0.5, freedom) == 0


@pytest.mark.parametrize("above", [1e-5, 0.0005, 0.025, 0.2])
def test_between_whole_degrees_of_freedom_a_quantile_is_at_most_4_percent_too_large(above: float) -> None:
    """By Simpson's rule over the density."""
    for freedom in (1.2, 1.5, 2.04, 2.5, 3.9, 12.5):
        t = quantile(above, freedom)
        assert quantile(above, math.floor(freedom)) > t > quantile(above, math.ceil(freedom))
        assert above * 0.75 < tail(t, freedom) < above * 1.0001, freedom


def tail(t: float, freedom: float) -> float:
    """The probability beyond t: the density over x = 1 / u^2, from u = 0 to t^-0.5."""
    density = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    steps, end = 20_000, t**-0.5

    def at(u: float) -> float:
        return 0.0 if u == 0 else density * (1 + u**-4 / freedom) ** (-(freedom + 1) / 2) * 2 / u**3

    total = at(0.0) + at(end) + sum((4 if k % 2 else 2) * at(k * end / steps) for k in range(1, steps))
    return total * end / steps / 3


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert beyond(1.959964, 100_000) == pytest.approx(0.025, abs=1e-5)
    assert beyond(1.0, 1) == pytest.approx(0.5 - math.atan(1.0) / math.pi)
