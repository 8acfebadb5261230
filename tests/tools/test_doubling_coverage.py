"""A change is told when there is one, and not when there is none."""

import numpy as np
import pytest
from doubling_coverage import CHANGES


@pytest.mark.parametrize(("truth", "seeds", "said"), [("half of every rise", 3, True), ("nothing", 3, False)])
def test_reports_say_what_truly_changed(truth: str, seeds: int, said: bool) -> None:
    rng = np.random.default_rng(0)
    assert [CHANGES[truth].report(rng, seeds) for _ in range(3)] == [said] * 3
