"""A short form of the table in docs/sharing.md: how often intervals of ranks hold the true rank."""

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.mark.parametrize(("named", "seeds"), [("all equal", 1), ("three equal, three 0.1 nats above", 3)])
def test_intervals_hold_the_rank_and_ranks_of_resamples_do_not(
    load: Callable[[str], ModuleType], named: str, seeds: int
) -> None:
    tool = load("rank_coverage")
    cells = tool.row(seeds, named, seeds, 150, resamples=200).split(" | ")
    assert float(cells[2].removesuffix(" %")) >= 90
    assert float(cells[4].removesuffix(" %")) < 88
