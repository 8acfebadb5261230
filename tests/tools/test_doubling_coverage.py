"""A change is told when there is one, and not when there is none."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest


@pytest.mark.parametrize(("truth", "seeds", "said"), [("half of every rise", 3, True), ("nothing", 3, False)])
def test_reports_say_what_truly_changed(load: Callable[[str], ModuleType], truth: str, seeds: int, said: bool) -> None:
    change = load("doubling_coverage").CHANGES[truth]
    rng = np.random.default_rng(0)
    assert [change.report(rng, seeds) for _ in range(3)] == [said] * 3
