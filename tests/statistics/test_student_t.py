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


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert beyond(1.959964, 100_000) == pytest.approx(0.025, abs=1e-5)
    assert beyond(1.0, 1) == pytest.approx(0.5 - math.atan(1.0) / math.pi)
