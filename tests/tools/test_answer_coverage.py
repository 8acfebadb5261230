"""A short form of the table in docs/results/measurements.md: what is far apart is found, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import numpy as np


def test_the_answer_tells_what_is_far_apart_with_three_seeds_and_no_order_that_is_not_there(
    load: Callable[[str], ModuleType],
) -> None:
    tool = load("answer_coverage")
    equal, books = tool.POPULATIONS[1], tool.POPULATIONS[-2]
    *false, orders, extensions, at_once, _extensions_at_once = np.mean(
        [tool.tried(books, 3, trial) for trial in range(6)], axis=0
    )
    assert false == [0, 0, 0, 0]
    assert orders > 0.6 > at_once
    assert extensions > 0.4
    assert np.mean([tool.tried(equal, 3, trial)[:3] for trial in range(4)]) == 0


def test_what_is_wrong_is_counted(load: Callable[[str], ModuleType]) -> None:
    """Correct statements, judged against a population in which they are false."""
    tool = load("answer_coverage")
    books = tool.POPULATIONS[-2]
    rows = books.rows(np.random.default_rng(0), 5)
    found = tool.family(rows, rows, books.models, True)
    turned = replace(books, rise_M=0.5 - books.rise_M)
    orders = tool.judged(found, turned)[0]
    assert sum(tool.WRONG[word](truth) for word, truth in orders if word in tool.WRONG) >= 4
    assert tool.share_found(orders) < 0.3 < 0.7 < tool.share_found(tool.judged(found, books)[0])
    assert tool.interval_is_wrong(found, turned)
    assert not tool.interval_is_wrong(found, books)
