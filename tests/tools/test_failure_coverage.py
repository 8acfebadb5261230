"""A short form of the table of failure lengths in docs/results/measurements.md: false ones, a step that is there."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def tool(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("failure_coverage")


def test_heavy_tails_and_unequal_documents(tool: ModuleType) -> None:
    false, single, early, exact, _ = np.array([tool.tried(2, trial, trial < 1) for trial in range(8)], float).T
    assert false.sum() <= 1
    assert np.isfinite(single).sum() == 1
    assert early.sum() == 0
    assert exact.sum() >= 7
