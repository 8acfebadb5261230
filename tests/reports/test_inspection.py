"""What stands together in a table of an inspection."""

from typing import Any

import pandas as pd

from extrapolate.reports.inspection import SIZES, by_model, sizes_of_models


def row(value: float, **changes: Any) -> dict[str, Any]:
    return {
        "run": "rope", "model": "RoPE", "extension": "as-trained", "split": "test", "step": 10, "n_windows": 4,
        "targets_hash": "aaaaaaa1", "factor": 1.0, "value": value, "error": 0.1, "at": None, "layer": None,
        "head": None, "extension_sha256": None,
    } | changes  # fmt: skip


def titles(*rows: dict[str, Any]) -> dict[str, list[float]]:
    return {title: mine["value"].tolist() for title, mine in by_model(pd.DataFrame(list(rows)))}


def test_a_table_is_of_one_run_extension_and_split() -> None:
    assert titles(row(1.0), row(2.0, factor=8.0), row(3.0, step=5), row(4.0, run="b")) == {
        "RoPE (rope)": [1.0, 2.0], "RoPE (b)": [4.0],
    }  # fmt: skip
    assert list(titles(row(1.0), row(2.0, split="validation"))) == ["RoPE (rope, test)", "RoPE (rope, validation)"]


def test_other_windows_are_another_table() -> None:
    """A later inspection, of other factors, reads other windows, and replaces only the rows of its own lengths."""
    later = [row(1.0), row(2.0, factor=4.0)]
    earlier = row(3.0, factor=96.0, targets_hash="bbbbbbb2", n_windows=2)
    assert titles(*later, earlier) == {
        "RoPE (rope, 4 windows, aaaaaa)": [1.0, 2.0], "RoPE (rope, 2 windows, bbbbbb)": [3.0],
    }  # fmt: skip


def test_models_that_were_measured_at_other_lengths_say_so() -> None:
    def models(*factors: float) -> list[str]:
        of = {"measurement": "scale", "quantity": next(iter(SIZES))}
        rows = [row(1.0, run=name, factor=factor, **of) for name, factor in zip("ab", factors, strict=True)]
        return sizes_of_models(pd.DataFrame(rows))["Model"].tolist()

    assert models(1.0, 1.0) == ["RoPE (a)", "RoPE (b)"]
    assert models(2.0, 1.0) == ["RoPE (a), at 2x", "RoPE (b), at 1x"]
