"""How pictures draw models, from rows made by hand: what is inside the axes, and what leaves the picture aloud."""

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from extrapolate.reports import escaping, plots, styles
from extrapolate.reports.chart import Axis, Chart, Panel, Series
from extrapolate.reports.sections import losses, positions
from extrapolate.reports.styles import COLOURS


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts beside the panels of the figures that are saved from here on."""
    texts: list[str] = []
    save = plots.save

    def saved(figure: Any, path: Path) -> None:
        texts.extend(text.get_text() for text in figure.texts)
        save(figure, path)

    monkeypatch.setattr(plots, "save", saved)
    return texts


def rows_of(models: dict[str, list[float]], **columns: object) -> pd.DataFrame:
    rows = [
        {"model": model, "run": model, "extension": "as-trained", "factor": 2.0**at, "loss": loss, "control_loss": 4.0}
        for model, losses_of in models.items()
        for at, loss in enumerate(losses_of)
    ]
    return pd.DataFrame(rows).assign(seq_len=64, **columns)


def style_of(rows: pd.DataFrame) -> dict[str, styles.Style]:
    return styles.styles(rows, list(dict.fromkeys(rows["model"])))


def many(count: int) -> pd.DataFrame:
    """Models of which one diverges, and one ends early, and some have long names."""
    found = {
        f"model {at}" + " with a long name" * (at % 3): [4.0 + 0.01 * at, 4.1 + 0.02 * at, 4.2] for at in range(count)
    }
    found |= {"diverged": [4.5, 9.0, 50.0], "short": [4.0, 4.2, math.nan]} if count > 2 else {}
    return rows_of(dict(list(found.items())[-count:]))


def curves_of(rows: pd.DataFrame) -> pd.DataFrame:
    """As `positions.by_position` makes them, of windows of 1, 2 and 4 times 64."""
    return pd.concat(
        rows.assign(
            position=position,
            bucket=32,
            length=64 * rows["factor"],
            windows="up to 4x",
            difference=rows["loss"] - 4.0,
            low=rows["loss"] - 4.1,
            high=rows["loss"] - 3.9,
        )
        for position in (0, 64, 96)
    ).reset_index(drop=True)


def loss_by_length(rows: pd.DataFrame, style: dict[str, styles.Style] | None = None) -> Chart:
    return losses.chart(rows, style or style_of(rows), [], "Protocol windows", "made.png")


def by_position(rows: pd.DataFrame) -> positions.Curves:
    return positions.Curves(curves_of(rows), [], styles.named(style_of(rows), rows), style_of(rows), 64)


def loss_by_position(rows: pd.DataFrame) -> Chart:
    return by_position(rows).losses("made.png")


def axis_of(chart: Chart) -> list[float]:
    """The range of y of the first panel."""
    return list(chart.panels[0].y.range)


def test_the_names_stand_where_the_lines_end_and_grey_ones_are_counted(figures: list[Any], tmp_path: Path) -> None:
    plots.draw(loss_by_length(many(31)), tmp_path / "made.png")
    texts = {text.get_text(): text.get_position()[1] for text in figures[0].texts}
    (note,) = [text for text in texts if text.startswith("Grey: ")]
    assert note == "Grey: 11 models that the picture does not name; off the scale: 1, to 50. The table has all."
    assert len(texts) == 1 + styles.MOST_NAMED + 1  # and the control
    few = rows_of({"high": [4.0, 5.0], "low": [4.0, 4.5], "lower": [4.0, 4.49], "diverged": [4.0, 50.0]})
    plots.draw(loss_by_length(few), tmp_path / "made.png")
    texts = {text.get_text(): text.get_position()[1] for text in figures[1].texts}
    order = ["diverged  (to 50)", "high", "low", "lower", "best control"]
    assert sorted(texts, key=lambda text: -texts[text]) == order


def test_the_best_control_is_in_the_picture_however_far_it_is(figures: list[Any], tmp_path: Path) -> None:
    rows = rows_of({"RoPE": [4.0, 4.4], "ExPE": [4.1, 4.3]}).assign(control_loss=1.5)
    plots.draw(loss_by_length(rows), tmp_path / "made.png")
    plots.draw(loss_by_position(rows), tmp_path / "made.png")
    for drawn in figures:
        for panel in drawn.axes:
            bottom, top = panel.get_ylim()
            assert bottom < 1.5
            assert top < 5


def apart() -> pd.DataFrame:
    """Three seeds of two models, which spread more than the models differ, and of one that diverges."""
    rows = rows_of({"RoPE": [4.0, 4.1, 4.2], "ExPE": [4.0, 4.05, 4.1], "diverged": [4.0, 50.0, 90.0]})
    each = [rows.assign(run=rows["run"] + f"-s{at}", loss=rows["loss"] + off) for at, off in enumerate((-1.5, 0, 2))]
    return pd.concat(each, ignore_index=True)


def test_seeds_and_bands_are_inside_their_axis_in_their_models_colour(figures: list[Any], tmp_path: Path) -> None:
    """Else the picture shows a clean win where the seeds tell no difference."""
    rows = apart()
    chart = loss_by_length(rows)
    plots.draw(chart, tmp_path / "made.png")
    axes = figures[0].axes[0]
    bottom, top = axes.get_ylim()
    assert axis_of(chart) == pytest.approx([bottom, top], abs=1e-3)
    reach = 4.3027 * np.std([-1.5, 0, 2], ddof=1) / 3**0.5  # Student's t with two degrees of freedom
    assert bottom < 4.05 + 1 / 6 - reach
    assert top > 4.2 + 1 / 6 + reach
    assert top < 4.2 + 1 / 6 + reach + 1  # what diverged is left out, and said
    assert "diverged  (to 90.2)" in [text.get_text() for text in figures[0].texts]
    colours = [band.get_facecolor()[0] for band in axes.collections]
    assert [mpl.colors.to_hex(colour).upper() for colour in colours] == [*COLOURS[:3]]
    assert all(colour[3] <= 0.15 for colour in colours)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("losses_of", "said"),
    [([4.0, math.inf], "odd  (to infinity)"), ([math.nan] * 2, "odd"), ([-math.inf, math.nan], "odd  (to -infinity)")],
)
def test_a_loss_that_cannot_be_drawn_leaves_the_picture_aloud(
    tmp_path: Path, shown: list[str], losses_of: list[float], said: str
) -> None:
    plots.draw(loss_by_length(rows_of({"sound": [4.0, 4.5], "odd": losses_of})), tmp_path / "made.png")
    assert (tmp_path / "made.png").stat().st_size
    assert said in shown


@pytest.mark.filterwarnings("error")
def test_any_name_can_be_drawn(tmp_path: Path, shown: list[str]) -> None:
    hostile = ["$\\frac{$", "_hidden", "a" * 1000, "x\x1b[31m\ny", "é", "<script>"]
    rows = rows_of({model: [4.0, 4.1] for model in hostile})
    lines = [Series(model, [1, 2], [4.0, 4.1], style) for model, style in style_of(rows).items()]
    plots.draw(Chart("text", "made.svg", [Panel(lines, Axis("x"))]), tmp_path / "made.svg")
    assert (tmp_path / "made.svg").stat().st_size
    assert set(shown) == {escaping.label(name) for name in hostile}


@pytest.mark.parametrize(("suffix", "begins"), [(".pdf", b"%PDF"), (".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_equal_rows_give_equal_files(suffix: str, begins: bytes, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with plots.own_settings():
            plots.draw(loss_by_length(rows_of({"RoPE": [4.0, 4.5]})), tmp_path / f"{name}{suffix}")
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
    assert first.startswith(begins)
    assert first == second
