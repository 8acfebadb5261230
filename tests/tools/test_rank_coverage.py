"""A short form of the table in docs/sharing.md: how often intervals of ranks hold the true rank."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "rank_coverage.py"


@pytest.mark.parametrize(("named", "seeds"), [("all equal", 1), ("three equal, three 0.1 nats above", 3)])
def test_intervals_hold_the_rank_and_ranks_of_resamples_do_not(named: str, seeds: int) -> None:
    spec = importlib.util.spec_from_file_location("tools_rank_coverage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    cells = tool.row(seeds, named, seeds, 150, resamples=200).split(" | ")
    assert float(cells[2].removesuffix(" %")) >= 90
    assert float(cells[4].removesuffix(" %")) < 88
