"""How pictures draw models, from rows made by hand."""

import pandas as pd
import pytest

from extrapolate.reports import plots
from extrapolate.reports.sections import losses, positions


def frame(*models: tuple[str, str, str]) -> pd.DataFrame:
    return pd.DataFrame(models, columns=["model", "run", "extension"])


ROWS = frame(
    ("RoPE", "a", "as-trained"), ("RoPE + PI", "a", "pi"), ("ExPE", "b", "as-trained"), ("ExPE + PI", "b", "pi"),
    ("RoPE + YaRN", "a", "yarn"),
)  # fmt: skip


def test_a_run_has_one_colour_and_an_extension_one_marker() -> None:
    style = plots.styles(ROWS, ["RoPE", "RoPE + PI", "RoPE + YaRN", "ExPE", "ExPE + PI"])
    assert {style[model]["color"] for model in ("RoPE", "RoPE + PI", "RoPE + YaRN")} == {"C0"}
    assert {style[model]["color"] for model in ("ExPE", "ExPE + PI")} == {"C1"}
    assert style["RoPE"]["linestyle"] == style["ExPE"]["linestyle"] == "-"
    assert style["RoPE + PI"]["marker"] == style["ExPE + PI"]["marker"]
    assert style["RoPE + PI"]["linestyle"] == style["ExPE + PI"]["linestyle"]
    assert len({(str(one["color"]), one["marker"], str(one["linestyle"])) for one in style.values()}) == 5


def test_a_picture_with_fewer_models_keeps_the_others_styles(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """A model keeps its colour where an earlier one in the order has no rows."""
    style = plots.styles(ROWS, ["RoPE", "RoPE + PI", "RoPE + YaRN", "ExPE", "ExPE + PI"])
    figure, axes = plots.panels(1)
    monkeypatch.setattr(plots, "panels", lambda count: (figure, axes))
    rows = ROWS[ROWS["run"] == "b"].assign(factor=1.0, loss=4.0, control_loss=4.0, seq_len=64)
    losses.draw(rows, style, "title", tmp_path / "made.png")
    drawn = {line.get_label(): line.get_color() for line in axes[0].get_lines()}
    assert drawn["ExPE"] == "C1"
    assert drawn["ExPE + PI"] == "C1"
    assert "RoPE" not in drawn


def test_the_axis_of_differences_is_that_of_the_data(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    curves = pd.DataFrame(
        {
            "model": "RoPE", "factor": 4.0, "position": [64, 96, 128], "difference": [0.80, 0.82, 0.84],
            "low": [0.79, 0.81, 0.83], "high": [0.81, 0.83, 0.85],
        }
    )  # fmt: skip
    figure, axes = plots.panels(1)
    monkeypatch.setattr(plots, "panels", lambda count: (figure, axes))
    positions.draw_differences(curves, [], plots.styles(ROWS, ["RoPE"]), 64, tmp_path / "made.png")
    bottom, top = axes[0].get_ylim()
    assert 0.7 < bottom < 0.79
    assert 0.85 < top < 0.9
