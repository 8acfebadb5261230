"""Which learning rate is taken: the one whose models end with the lowest validation loss, on average over seeds."""

from pathlib import Path

import pandas as pd
import pytest

from extrapolate import results
from extrapolate.studies.cells import Cell
from extrapolate.studies.rates import choose, validation_loss


def test_a_runs_loss_is_its_last_on_the_validation_split(tmp_path: Path) -> None:
    """Neither its last training loss, nor the lowest on the way."""
    log = pd.DataFrame(
        {"step": [1, 1, 2, 2, 3], "loss": [5.0, None, 4.0, None, 1.5], "val_loss": [None, 2.25, None, 2.5, None]}
    )
    results.write_frame(tmp_path / "metrics.parquet", log)
    assert validation_loss(tmp_path) == 2.5


def test_the_rate_with_the_lowest_mean_over_seeds_is_taken() -> None:
    """Not the one with the single lowest loss, nor one with a seed that failed."""
    losses = {
        ("low", 0): 2.0, ("low", 1): 2.2, ("middle", 0): 1.0, ("middle", 1): 4.0, ("high", 0): 1.0, ("high", 1): None,
    }  # fmt: skip
    rate_of = {"low": 1e-3, "middle": 3e-3, "high": 1e-2}
    group = [Cell(f"{rate}-{seed}", "rope", {"seed": seed}, ()) for rate, seed in losses]
    rates = {f"{rate}-{seed}": rate_of[rate] for rate, seed in losses}
    choice = choose(group, rates, {f"{rate}-{seed}": loss for (rate, seed), loss in losses.items()})
    assert choice.losses == {1e-3: pytest.approx(2.1), 3e-3: 2.5, 1e-2: None}
    # Student's t of one degree of freedom is 12.706 at 97.5 %; the deviations of the two means are 0.1 and 1.5.
    half_widths = {1e-3: pytest.approx(1.2706, abs=1e-4), 3e-3: pytest.approx(19.059, abs=1e-3), 1e-2: None}
    assert choice.half_widths == half_widths
    assert choice.chosen == 1e-3
    assert choice.edge == "lowest"
    assert choice.seeds == (0, 1)
