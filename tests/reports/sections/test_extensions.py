"""What extensions change, from rows made by hand: `test_checkpoints.py` has those of real runs."""

import pandas as pd
import pytest

from extrapolate.reports.sections.extensions import against_plain


def rows_of(losses: dict[tuple[str, str, int], list[float | None]]) -> pd.DataFrame:
    """Rows of losses: model, extension and seed, and the losses at 1x and 4x."""
    return pd.DataFrame(
        [
            {
                "model": model, "extension": extension, "run": f"{model.split()[0]}-{seed}", "seed": seed,
                "factor": factor, "loss": loss,
            }
            for (model, extension, seed), both in losses.items()
            for factor, loss in zip((1.0, 4.0), both, strict=True)
        ]
    ).astype({"loss": float})  # fmt: skip


def test_differences_are_of_the_same_run_and_say_where_an_extension_helps() -> None:
    rows = rows_of(
        {
            ("RoPE", "as-trained", 0): [4.0, 5.0], ("RoPE", "as-trained", 1): [4.2, 5.4],
            ("RoPE + YaRN", "yarn", 0): [4.1, 4.5], ("RoPE + YaRN", "yarn", 1): [4.2, 4.5],
            ("RoPE + PI", "pi", 0): [4.0, None], ("RoPE + PI", "pi", 1): [4.2, 5.0],
            ("ALiBi", "as-trained", 0): [4.0, 4.0], ("ExPE + PI", "pi", 0): [4.0, 4.0],
        }
    )  # fmt: skip
    table = against_plain(rows, ["RoPE", "RoPE + YaRN", "RoPE + PI", "ALiBi"]).set_index("Model")
    assert list(table.index) == ["RoPE + YaRN", "RoPE + PI"]  # without a plain run there is nothing to compare with
    assert table.loc["RoPE + YaRN", "Difference (ev=1)"] == pytest.approx(0.05)
    assert table.loc["RoPE + YaRN", "Difference (ev=4)"] == pytest.approx(-0.7)
    assert table.loc["RoPE + YaRN", ["As trained", "Helps at", "Harms at", "Seeds"]].tolist() == ["RoPE", "4x", "1x", 2]
    assert pd.isna(table.loc["RoPE + PI", "Difference (ev=4)"])  # one seed has no loss there
    assert table.loc["RoPE + PI", ["Helps at", "Harms at"]].tolist() == ["none", "none"]
