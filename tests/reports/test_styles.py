"""Which colours models have, and how far the axis of a picture reaches."""

import math

import pandas as pd

from extrapolate.reports import styles
from extrapolate.reports.styles import COLOURS


def frame(*models: tuple[str, str, str]) -> pd.DataFrame:
    return pd.DataFrame(models, columns=["model", "run", "extension"])


ROWS = frame(
    ("RoPE", "a", "as-trained"), ("RoPE + PI", "a", "pi"), ("ExPE", "b", "as-trained"), ("ExPE + PI", "b", "pi"),
    ("RoPE + YaRN", "a", "yarn"),
)  # fmt: skip


def test_a_run_has_one_colour_and_an_extension_one_marker() -> None:
    style = styles.styles(ROWS, ["RoPE", "RoPE + PI", "RoPE + YaRN", "ExPE", "ExPE + PI"])
    assert {style[model]["color"] for model in ("RoPE", "RoPE + PI", "RoPE + YaRN")} == {COLOURS[0]}
    assert {style[model]["color"] for model in ("ExPE", "ExPE + PI")} == {COLOURS[1]}
    assert style["RoPE"]["linestyle"] == style["ExPE"]["linestyle"] == "-"
    assert style["RoPE + PI"]["marker"] == style["ExPE + PI"]["marker"]
    assert style["RoPE + PI"]["linestyle"] == style["ExPE + PI"]["linestyle"]
    assert len({(str(one["color"]), one["marker"], str(one["linestyle"])) for one in style.values()}) == 5


def test_a_diverged_model_does_not_flatten_the_rest() -> None:
    usual = [4.2, 4.3, 4.5, 4.8, 5.0, 4.2, 4.1, 4.1]
    low, high = styles.limits(pd.Series([*usual, 50.0, math.inf, math.nan]))
    assert 4.0 < low < 4.1
    assert 5.0 < high < 5.2
    assert styles.limits(pd.Series([*usual, 5.9]))[1] > 5.9  # an ordinary failure is shown
    assert styles.limits(pd.Series([-60.0, *usual]))[0] > 4.0
    assert styles.limits(pd.Series([4.0, 4.0])) == (3.95, 4.05)
    assert styles.limits(pd.Series([math.nan, math.inf, 1e300])) is None
