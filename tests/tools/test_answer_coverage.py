"""A short form of the table in docs/results/coverage.md: what is far apart is found, and nothing else."""

from collections.abc import Callable
from types import ModuleType

import numpy as np


def test_the_answer_tells_what_is_far_apart_with_three_seeds_and_no_order_that_is_not_there(
    load: Callable[[str], ModuleType],
) -> None:
    tool = load("answer_coverage")
    equal, *_, books = tool.POPULATIONS[1:]
    false_order, false_word, told, at_once, _ = np.mean([tool.tried(books, 3, trial) for trial in range(6)], axis=0)
    assert told >= 0.6 > at_once
    assert false_order == false_word == 0
    assert np.mean([tool.tried(equal, 3, trial)[:2] for trial in range(4)]) == 0
