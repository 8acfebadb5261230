"""Which colours models have, which of them a picture names, and how far its axis reaches."""

import math

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports import chart, styles
from extrapolate.reports.styles import COLOURS, MANY, MOST_NAMED


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


def test_runs_beyond_the_palette_have_markers_of_their_own() -> None:
    models = [f"m{number}" for number in range(4 * len(COLOURS))]
    style = styles.styles(frame(*((model, model, "as-trained") for model in models)), models)
    assert len({(one["color"], one["marker"]) for one in style.values()}) == len(models)


def linear(colour: str) -> np.ndarray:
    """The light of a colour's red, green and blue (sRGB)."""
    share = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", [chart.BETTER, chart.NEITHER, chart.WORSE])
def test_the_text_of_a_maps_cell_can_be_read(colour: str) -> None:
    """By the contrast of WCAG 2, which asks for 4.5."""
    assert (luminance(colour) + 0.05) / (luminance(chart.INK) + 0.05) > 4.5


def test_every_colour_is_seen_on_white_and_on_dark() -> None:
    """By the contrast of WCAG 2, where 21 is black on white."""
    for colour in (*COLOURS, styles.GREY):
        assert 1.05 / (luminance(colour) + 0.05) > 2.4
        assert (luminance(colour) + 0.05) / (luminance("#15181c") + 0.05) > 3


# Of Machado, Oliveira and Fernandes (2009), for the whole loss of one kind of cones.
BLIND = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("kind", BLIND)
def test_the_colour_blind_tell_the_colours_apart(kind: str) -> None:
    """By their distance in CIELAB, where 2 is just seen."""

    def lab(light: np.ndarray) -> np.ndarray:
        to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        x, y, z = np.cbrt(to_xyz @ np.clip(light, 0.01, 1) / [0.9505, 1, 1.089])
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    seen = [lab(np.array(BLIND[kind]) @ linear(colour)) for colour in COLOURS]
    assert min(np.linalg.norm(one - other) for at, one in enumerate(seen) for other in seen[:at]) > 12


def losses_of(count: int, extensions: int) -> pd.DataFrame:
    """Runs with extensions: the first run is best, at 4x with its second extension."""
    rows = []
    for run in range(count):
        for at in range(extensions):
            plain = {"model": f"m{run}", "run": f"m{run}", "extension": "as-trained"}
            model = plain | ({"model": f"m{run}+{at}", "extension": f"e{at}"} if at else {})
            loss = 4 + 0.01 * run + (0.1 if at else 0.0)
            rows += [model | {"factor": 1.0, "loss": loss}, model | {"factor": 4.0, "loss": loss - 0.5 * (at == 2)}]
    return pd.DataFrame(rows)


def test_few_models_are_all_named_and_of_many_the_plain_ones_and_the_best_of_each_length() -> None:
    def found(rows: pd.DataFrame) -> list[str]:
        return styles.named(styles.styles(rows, list(dict.fromkeys(rows["model"]))), rows)

    assert len(found(losses_of(MANY // 3, 3))) == MANY
    assert found(losses_of(5, 4)) == ["m0", "m0+2", "m1", "m2", "m3", "m4"]
    assert found(losses_of(100, 4)) == ["m0", "m0+2", *(f"m{run}" for run in range(1, MOST_NAMED - 1))]
    last = losses_of(100, 1).assign(loss=lambda rows: -rows["loss"])
    assert found(last) == ["m0", *(f"m{run}" for run in range(101 - MOST_NAMED, 100))], "the first is named in any case"


def test_a_diverged_model_does_not_flatten_the_rest() -> None:
    usual = [4.2, 4.3, 4.5, 4.8, 5.0, 4.2, 4.1, 4.1]
    low, high = styles.limits(pd.Series([*usual, 50.0, math.inf, math.nan]))
    assert 4.0 < low < 4.1
    assert 5.0 < high < 5.2
    assert styles.limits(pd.Series([*usual, 5.9]))[1] > 5.9  # an ordinary failure is shown
    assert styles.limits(pd.Series([-60.0, *usual]))[0] > 4.0
    assert styles.limits(pd.Series([4.0, 4.0])) == (3.95, 4.05)
    assert styles.limits(pd.Series([math.nan, math.inf, 1e300])) is None


def test_a_reference_far_from_the_models_is_shown_whole() -> None:
    low, high = styles.limits(
        pd.Series([4.2, 4.3, 4.2, 4.4, 4.3, 4.5, 50.0]), pd.Series([2.0, 2.1]), pd.Series([math.nan])
    )
    assert low < 2.0
    assert 4.5 < high < 5.0
    assert styles.limits(pd.Series([math.inf]), pd.Series([2.0])) == pytest.approx((1.95, 2.05))
