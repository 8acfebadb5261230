"""A short form of the table in docs/results/measurements.md: the number of seeds that a comparison advises."""

from collections.abc import Callable
from types import ModuleType


def test_a_row(load: Callable[[str], ModuleType]) -> None:
    row = load("seeds_needed").row
    difference, spread, needed, decided, *pilots = row(0, 0.06, 0.07, 30).strip("| ").split(" | ")
    assert (difference, spread) == ("0.06", "0.07")
    assert 8 < int(needed) < 20
    assert 60 <= int(decided.removesuffix(" %")) <= 100
    assert [int(share.removesuffix(" %")) > 50 for share in pilots[::2]] == [True, True]
