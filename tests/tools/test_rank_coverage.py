"""A short form of the table in docs/results/measurements.md: how often intervals of ranks hold the true rank."""

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.mark.parametrize(("named", "seeds"), [("6 equal", 1), ("3 equal, 3 0.1 nats above", 3)])
def test_intervals_hold_the_rank_and_ranks_of_resamples_do_not(
    load: Callable[[str], ModuleType], named: str, seeds: int
) -> None:
    tool = load("rank_coverage")
    cells = tool.row(seeds, named, seeds, 150, resamples=200).split(" | ")
    assert float(cells[2].removesuffix(" %")) >= 90
    assert float(cells[6].removesuffix(" %")) < 88


def test_many_models_narrow_an_interval_and_still_hold_the_rank_of_one_that_varies_more(
    load: Callable[[str], ModuleType],
) -> None:
    tool = load("rank_coverage")
    cells = tool.row(5, "48 equal, 1 varies 14 times as much", 3, 60, resamples=100).split(" | ")
    assert float(cells[2].removesuffix(" %")) >= 88
    cells = tool.row(6, "48, 0.02 nats apart", 3, 5, resamples=100).split(" | ")
    assert float(cells[3]) < 0.8 * float(cells[5])
