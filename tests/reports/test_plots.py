"""How pictures draw models, from rows made by hand."""

import math

import pandas as pd
import pytest

from extrapolate.reports import names, plots, position_pictures
from extrapolate.reports.sections import losses


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


def test_twenty_runs_have_colours_of_their_own() -> None:
    models = [f"m{number}" for number in range(20)]
    style = plots.styles(frame(*((model, model, "as-trained") for model in models)), models)
    assert len({one["color"] for one in style.values()}) == 20


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
    position_pictures.draw_differences(curves, [], plots.styles(ROWS, ["RoPE"]), 64, tmp_path / "made.png")
    bottom, top = axes[0].get_ylim()
    assert 0.7 < bottom < 0.79
    assert 0.85 < top < 0.9


def test_every_seed_is_a_thin_line_behind_the_mean(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    one = rows_of({"RoPE": [4.0, 4.4], "ExPE": [4.0, 4.2]})
    other = one[one["model"] == "RoPE"].assign(run="RoPE-s1", loss=[4.2, 5.0])
    figure, axes = plots.panels(1)
    monkeypatch.setattr(plots, "panels", lambda count: (figure, axes))
    losses.draw(pd.concat([one, other]), plots.styles(one, ["RoPE", "ExPE"]), "title", tmp_path / "made.png")
    rope = [line for line in axes[0].get_lines() if line.get_color() == "C0"]
    thin, (mean,) = rope[:-1], rope[-1:]
    assert [line.get_ydata().tolist() for line in thin] == [[4.0, 4.4], [4.2, 5.0]]
    assert mean.get_ydata() == pytest.approx([4.1, 4.7])
    assert all(line.get_linewidth() < mean.get_linewidth() for line in thin)
    assert all(line.get_zorder() < mean.get_zorder() for line in thin)
    assert [line.get_label() for line in axes[0].get_lines() if line.get_color() == "C1"] == ["ExPE"]
    named = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert named == ["RoPE", "ExPE", "best control (context of L/2 to L)"]


def rows_of(models: dict[str, list[float]], **columns: object) -> pd.DataFrame:
    rows = [
        {"model": model, "run": model, "extension": "as-trained", "factor": 2.0**at, "loss": loss, "control_loss": loss}
        for model, losses_of in models.items()
        for at, loss in enumerate(losses_of)
    ]
    return pd.DataFrame(rows).assign(seq_len=64, **columns)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "losses_of",
    [
        [4.0, math.inf],
        [math.inf] * 2,
        [math.nan] * 2,
        [1e300, 1.7e308],
        [-1e300, 4.0],
        [-math.inf, math.nan],
        [0.0, -5.0],
    ],
)
def test_a_loss_that_cannot_be_drawn_is_left_out_aloud(monkeypatch: pytest.MonkeyPatch, tmp_path, losses_of) -> None:
    rows = rows_of({"sound": [4.0, 4.5], "odd": losses_of})
    style = plots.styles(rows, ["sound", "odd"])
    figure, axes = plots.panels(1)
    monkeypatch.setattr(plots, "panels", lambda count: (figure, axes))
    losses.draw(rows, style, "title", tmp_path / "made.png")
    assert (tmp_path / "made.png").stat().st_size
    (label,) = [text.get_text() for text in axes[0].get_legend().get_texts() if text.get_text().startswith("odd")]
    beyond = any(abs(loss) > 1e9 for loss in losses_of)
    assert label == ("odd (partly off the scale)" if beyond else "odd")


@pytest.mark.filterwarnings("error")
def test_any_name_can_be_drawn_and_many_models(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    hostile = ["$\\frac{$", "_hidden", "a" * 1000, "x\x1b[31m\ny", "中文", "<script>"]
    order = [*hostile, *(f"model {n}" for n in range(200))]
    rows = rows_of({model: [4.0, 4.1] for model in order}, position=0, length=128)
    figure, axes = plots.panels(1)
    monkeypatch.setattr(plots, "panels", lambda count: (figure, axes))
    losses.draw(rows, plots.styles(rows, order), "title", tmp_path / "made.svg")
    legend = axes[0].get_legend()
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown[: len(hostile)] == [names.label(name) for name in hostile]
    assert shown[-1].startswith("best control")
    assert legend.get_title().get_text() == f"and {len(order) + 1 - len(shown)} more models, see the table"


@pytest.mark.filterwarnings("error")
def test_many_factors_are_the_longest_few(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    asked = []

    def panels(count: int):
        asked.append(count)
        return figure, axes

    figure, axes = plots.panels(plots.MOST_PANELS)
    monkeypatch.setattr(plots, "panels", panels)
    monkeypatch.setattr(plots, "save", lambda figure, path: None)
    rows = rows_of({"RoPE": [4.0] * 30}, position=0, length=128)
    position_pictures.draw_losses(rows, plots.styles(rows, ["RoPE"]), 64, tmp_path / "made.png")
    assert asked == [plots.MOST_PANELS]
    assert axes[-1].get_title() == f"windows of {2.0**29:g}x"
