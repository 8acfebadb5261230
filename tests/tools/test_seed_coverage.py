"""A short form of the table in docs/results/measurements.md: coverage over seeds and documents."""

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def tool(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("seed_coverage")


def shares(line: str) -> list[float]:
    return [float(cell.split()[0]) for cell in line.strip("|").split("|") if cell.endswith("% ")]


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("difference", [0.0, -0.1])
def test_normal_seeds(tool: ModuleType, seeds: int, difference: float) -> None:
    population = tool.Population("x | x", difference, 0.1)
    ours, documents, _, wrong, _ = shares(tool.row(seeds, population, seeds, 300, resamples=300))
    assert ours >= 92
    assert documents < 80  # what was done without the seeds
    assert wrong <= (8 if difference == 0 else 2)


def test_seeds_that_differ_as_little_as_documents_do(tool: ModuleType) -> None:
    assert shares(tool.row(9, tool.Population("x | x", 0.05, 0.02), 3, 300, resamples=300))[0] >= 92


def test_seeds_that_fail_or_not(tool: ModuleType) -> None:
    """Where two models fail alike, few are told apart. Where one fails, two seeds often do not show it."""
    alike = tool.Population("x | x", 0.0, 0.02, fails=(0.2, 0.2))
    assert shares(tool.row(10, alike, 3, 300, resamples=300))[0] >= 92
    one = tool.Population("x | x", 0.0, 0.02, fails=(0.2, 0.0))
    assert one.truth == pytest.approx(0.1)
    assert shares(tool.row(11, one, 3, 300, resamples=300))[0] < 80
