"""How pictures draw models, from rows made by hand: what must hold with one model and with hundreds."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from extrapolate.reports import escaping, plots, styles
from extrapolate.reports.chart import MOST_ROWS, Axis, Chart, Heat, Panel, Series
from extrapolate.reports.sections import checkpoints, losses, positions
from extrapolate.reports.styles import COLOURS, spread


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


def differences(rows: pd.DataFrame) -> Chart:
    return by_position(rows).differences("made.png")


def axis_of(chart: Chart) -> list[float]:
    """The range of y of the first panel."""
    return list(chart.panels[0].y.range)


@pytest.mark.parametrize("chart", [loss_by_length, loss_by_position, differences])
@pytest.mark.parametrize("count", [1, 6, 61])
def test_a_picture_is_readable_with_any_number_of_models(
    figures: list[Any], tmp_path: Path, count: int, chart: Callable[[pd.DataFrame], Chart]
) -> None:
    plots.draw(chart(many(count)), tmp_path / "made.png")
    (figure,) = figures
    width, height = figure.get_size_inches() * plots.DOTS
    assert width < 3500
    assert height < 1000
    panels = [panel.get_window_extent() for panel in figure.axes]
    for panel in panels:
        assert min(panel.width, panel.height) >= 300
        assert panel.x0 > 0
        assert panel.x1 <= width
    boxes = [text.get_window_extent() for text in figure.texts]
    assert len(boxes) >= min(count, 2)
    for at, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.x1 <= width
        assert not any(box.overlaps(other) for other in [*panels, *boxes[:at]])
    shown = figure.axes[0].get_ylim()
    assert shown[1] - shown[0] < 6  # what diverged does not flatten the rest


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


def test_a_picture_with_fewer_models_keeps_the_others_styles(figures: list[Any], tmp_path: Path) -> None:
    """A model keeps its colour where an earlier one in the order has no rows."""
    rows = rows_of({"RoPE": [4.0, 4.4], "ExPE": [4.1, 4.3]})
    plots.draw(loss_by_length(rows[rows["model"] == "ExPE"], style_of(rows)), tmp_path / "made.png")
    assert [text.get_text() for text in figures[0].texts] == ["best control", "ExPE"]
    assert COLOURS[1] in {line.get_color() for line in figures[0].axes[0].get_lines()}
    assert COLOURS[0] not in {line.get_color() for line in figures[0].axes[0].get_lines()}


def test_every_seed_is_a_thin_line_behind_the_mean(figures: list[Any], tmp_path: Path) -> None:
    one = rows_of({"RoPE": [4.0, 4.4], "ExPE": [4.0, 4.2]})
    other = one[one["model"] == "RoPE"].assign(run="RoPE-s1", loss=[4.2, 5.0])
    plots.draw(loss_by_length(pd.concat([one, other])), tmp_path / "made.png")
    lines = figures[0].axes[0].get_lines()
    *thin, mean = [line for line in lines if line.get_color() == COLOURS[0]]
    assert [line.get_ydata().tolist() for line in thin] == [[4.0, 4.4], [4.2, 5.0]]
    assert mean.get_ydata() == pytest.approx([4.1, 4.7])
    assert all(line.get_linewidth() < mean.get_linewidth() for line in thin)
    assert all(line.get_zorder() < mean.get_zorder() for line in thin)
    assert len([line for line in lines if line.get_color() == COLOURS[1]]) == 1
    (band,) = figures[0].axes[0].collections  # of the one model with several seeds
    reach = 12.706 * np.array([0.1, 0.3])  # Student's t with one degree of freedom, times the error of the mean
    top = band.get_paths()[0].vertices[:, 1]
    assert max(top) == pytest.approx(4.7 + reach[1], abs=1e-3)
    assert min(top) == pytest.approx(4.7 - reach[1], abs=1e-3)


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


@pytest.mark.parametrize(
    ("losses", "below", "above", "bottom", "top"),
    [
        ({"RoPE": [4.8]}, 0.01, 0.01, (0.7, 0.8), (0.8, 0.9)),  # it does not begin at zero
        (
            {"RoPE": [4.0], "ExPE": [4.1], "ALiBi": [4.0], "NoPE": [4.1], "far": [40.0]}, 3, 5, (-3.6, -3), (5.1, 6),
        ),
    ],
)  # fmt: skip
def test_the_axis_of_differences_holds_their_bands(
    figures: list[Any], tmp_path: Path, losses: dict[str, list[float]], below: float, above: float,
    bottom: tuple[float, float], top: tuple[float, float],
) -> None:  # fmt: skip
    curves = curves_of(rows_of(losses))
    curves = curves.assign(low=curves["difference"] - below, high=curves["difference"] + above)
    style = style_of(curves)
    chart = positions.Curves(curves, [], [*style], style, 64).differences("made.png")
    plots.draw(chart, tmp_path / "made.png")
    ends = figures[0].axes[0].get_ylim()
    assert bottom[0] < ends[0] < bottom[1]
    assert top[0] < ends[1] < top[1]
    assert axis_of(chart) == pytest.approx(ends, abs=1e-3)


def test_the_seeds_of_checkpoints_are_inside_their_axes(figures: list[Any], tmp_path: Path) -> None:
    rows = pd.concat(apart().assign(step=step, tokens=1000 * step, seed=0) for step in (1, 2))
    rows["seed"] = rows["run"].str[-1].astype(int)
    table = checkpoints.by_checkpoint(rows, ["RoPE", "ExPE"], {})
    rows = rows[rows["model"] != "diverged"]
    chart = checkpoints.chart(rows, table, style_of(rows), "made.png")
    plots.draw(chart, tmp_path / "made.png")
    for panel, top in zip(figures[0].axes, (6.0, 6.2), strict=True):
        assert panel.get_ylim()[0] < 2.6
        assert panel.get_ylim()[1] > top


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("losses_of", "said"),
    [
        ([4.0, math.inf], "odd  (to infinity)"),
        ([math.inf] * 2, "odd  (to infinity)"),
        ([math.nan] * 2, "odd"),
        ([1e300, 1.7e308], "odd  (to infinity)"),
        ([-1e300, 4.0], "odd  (to -infinity)"),
        ([-math.inf, math.nan], "odd  (to -infinity)"),
        ([5.0, 2.9], "odd"),
    ],
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


@pytest.mark.filterwarnings("error")
def test_many_factors_are_the_longest_few(figures: list[Any], tmp_path: Path) -> None:
    rows = rows_of({"RoPE": [4.0] * 30}, position=0, bucket=32)
    plots.draw(positions.Curves(rows, [], ["RoPE"], style_of(rows), 64).losses("made.png"), tmp_path / "made.png")
    assert len(figures[0].axes) == positions.MOST_PANELS
    assert figures[0].axes[-1].get_title() == f"windows of {2.0**29:g}x"


def test_names_keep_their_distance_and_move_no_further_than_they_must() -> None:
    assert spread(np.array([1.0, 2.0]), 0.5, 3.0).tolist() == [1.0, 2.0]
    assert spread(np.array([1.1, 0.9]), 1.0, 3.0) == pytest.approx([1.5, 0.5])
    assert spread(np.array([0.0, 0.0, 3.0]), 1.0, 3.0) == pytest.approx([0.0, 1.0, 3.0])
    placed = spread(np.random.default_rng(0).uniform(0, 1, 20), 0.1, 2.0)
    assert np.diff(np.sort(placed)).min() > 0.0999
    assert placed.min() >= 0
    assert placed.max() <= 2.0 + 1e-9


MAP = Heat(
    "a title", ["a long name $x$ _"], ["1x", "4x", "16x"], np.array([[0.01, math.nan, math.inf]]), 0.3, signed=True
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", [1, MOST_ROWS])
def test_the_picture_of_a_map_has_readable_cells(figures: list[Any], tmp_path: Path, rows: int) -> None:
    map_ = replace(MAP, rows=list(MAP.rows) * rows, values_RC=np.repeat(MAP.values_RC, rows, axis=0))
    plots.draw(Chart("text", "made.png", map_), tmp_path / "made.png")
    (figure,) = figures
    figure.dpi = plots.DOTS
    (panel,) = figure.axes
    box = panel.get_window_extent()
    assert box.height / rows > 30
    cells = [text.get_window_extent() for text in panel.texts if text.get_text()]
    assert len(cells) == 2 * rows
    assert not any(one.overlaps(other) for at, one in enumerate(cells) for other in cells[:at])
    names = [text.get_window_extent() for text in panel.get_yticklabels()]
    assert all(name.x0 >= 0 and name.x1 <= box.x0 for name in names)
    assert max(figure.get_size_inches()) < 15


def test_a_map_of_many_columns_fits_without_texts(figures: list[Any], tmp_path: Path) -> None:
    many = Heat("title", ["queries", "keys"], [str(at) for at in range(32)], np.ones((2, 32)), 1.0)
    plots.draw(Chart("text", "made.png", many), tmp_path / "made.png")
    assert not figures[0].axes[0].texts
    assert max(figures[0].get_size_inches()) < 15


def test_nothing_is_drawn_where_a_model_has_no_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The connection of a line with its name would look like values."""
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure))
    rows = rows_of({"long": [4.0, 4.1, 4.2], "short": [4.0, 4.3, math.nan]})
    plots.draw(loss_by_length(rows), tmp_path / "made.png")
    edge = drawn[0].axes[0].get_position().x1 * drawn[0].get_figwidth()  # inches, as the artists beside the panel
    connected = {artist.get_color() for artist in drawn[0].artists if min(artist.get_xdata()) < edge}
    style = style_of(rows)
    assert connected & {style[name]["color"] for name in ("long", "short")} == {style["long"]["color"]}
