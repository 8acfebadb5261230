"""What metrics are computed from, and their values, by hand."""

import math
from typing import Any

import numpy as np
import pytest

from extrapolate.results.metrics.base import Scored, metrics, values


def scored(losses: list[float], n_bytes: list[float], windows: list[int] | None = None) -> Scored:
    zeros: Any = np.zeros(len(losses), np.int64)
    windows_N = zeros if windows is None else np.array(windows)
    return Scored(np.array(losses, np.float32), zeros, None, np.array(n_bytes), zeros, zeros, windows_N)


def test_the_mean_and_the_total_are_sums_in_double_precision() -> None:
    many = scored([0.1] * 100_000, [1.0])
    assert many.mean == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert many.total == pytest.approx(1e5 * float(np.float32(0.1)), rel=1e-12)


def test_values_by_hand() -> None:
    found = values(scored([1.0, 2.0, 6.0], [2.0, 0.0, 4.0]))
    assert found["perplexity"] == pytest.approx(math.e**3)
    assert found["bits_per_byte"] == pytest.approx(9 / math.log(2) / 6)


def test_windows_count_alike_however_many_targets_they_have() -> None:
    found = values(scored([1.0, 2.0, 3.0, 6.0], [1.0] * 4, [0, 1, 0, 0]))
    assert found["window_perplexity"] == pytest.approx(math.exp((10 / 3 + 2) / 2))
    assert found["perplexity"] == pytest.approx(math.exp(3))
    assert values(scored([800.0], [1.0]))["window_perplexity"] == math.inf


def test_where_there_is_nothing_to_measure_every_metric_is_empty() -> None:
    assert values(None) == dict.fromkeys(metrics.names())
    assert values(scored([1.0], [0.0]))["bits_per_byte"] is None
    assert values(scored([1.0, 2.0], [1.0, math.nan]))["bits_per_byte"] is None
    assert values(scored([800.0], [1.0]))["perplexity"] == math.inf
