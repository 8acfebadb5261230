"""What models cost, and which are on the front, from rows made by hand."""

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports.sections.cost import costs, front

NEAR, FAR = "Loss (ev=1)", "Loss (ev=4)"


def rows_of(models: dict[str, tuple[float | None, float, float]], machine: str = "A", seed: int = 0) -> pd.DataFrame:
    """Rows of losses: for each model its seconds, and its losses at 1x and 4x."""
    return pd.DataFrame(
        [
            {
                "model": model, "run": f"{model}-{seed}", "seed": seed, "extension": "as-trained", "factor": factor,
                "loss": loss, "tokens": 1_000_000, "training_seconds": seconds, "training_machine": machine,
                "machine": "A", "tokens_per_s": 5e4 / factor, "peak_mib": 300 + factor,
            }
            for model, (seconds, *losses) in models.items()
            for factor, loss in zip((1.0, 4.0), losses, strict=True)
        ]
    )  # fmt: skip


def test_costs_are_means_over_seeds_on_one_machine() -> None:
    here = {"RoPE": (100.0, 4.0, 5.0), "NoPE": (80.0, 4.3, 4.6), "ALiBi": (None, 4.1, 4.2)}
    rows = pd.concat(
        [rows_of(here), rows_of({"RoPE": (120.0, 4.2, 5.2)}, seed=1), rows_of({"T5": (10.0, 4.0, 4.0)}, machine="B")]
    )
    table = costs(rows, ["RoPE", "NoPE", "ALiBi", "T5"]).set_index("Model")
    assert table["Training seconds"].tolist() == pytest.approx([110, 80, float("nan"), float("nan")], nan_ok=True)
    assert table.loc["NoPE", "Training tokens/s"] == pytest.approx(12_500)
    assert table.loc["RoPE", ["Evaluation inputs/s (ev=4)", "Evaluation MiB (ev=4)"]].tolist() == [12_500, 304]
    assert table.loc["RoPE", [NEAR, FAR, "Seeds"]].tolist() == pytest.approx([4.1, 5.1, 2])


def test_on_the_front_is_what_no_other_beats_in_both() -> None:
    seconds = pd.Series([1.0, 2.0, 3.0, 2.0, None, 1.0, 0.5])
    loss = pd.Series([5.0, 4.0, 4.5, 4.0, 1.0, None, np.inf])
    assert front(seconds, loss).tolist() == [True, True, False, True, False, False, False]
