"""Numbers in colours: what the cells say, and that a large one leaves the others their colours."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from extrapolate.reports import heat, plots

TABLE = pd.DataFrame({"1x": [0.01, -0.2], "4x": [math.nan, 0.3], "16x": [math.inf, 50.0]})


def test_cells_say_their_numbers_and_what_diverged_does_not_make_the_rest_pale() -> None:
    found = heat.of_table(
        pd.DataFrame({"1x": [0.01 * at for at in range(1, 20)] + [50.0]}), list("abcdefghijklmnopqrst")
    )
    assert found.signed
    assert found.most < 0.2
    assert heat.of_table(TABLE, ["a", "b"]).texts() == [["+0.010", "", "+inf"], ["-0.200", "+0.300", "+50.000"]]
    shares = heat.of_table(TABLE, ["a", "b"], most=1.0)
    assert not shares.signed
    assert shares.texts()[1][0] == "-0.200"
    assert heat.of_table(TABLE[["4x"]].head(1), ["a"]).most == 1.0  # nothing to colour


def test_the_chart_names_rows_and_says_every_cell() -> None:
    made = heat.chart(heat.of_table(TABLE, ["<b>a</b>", "b"]), "text", "a.png")
    (trace,) = made.traces
    assert trace["z"] == [[0.01, None, None], [-0.2, 0.3, 50]]
    assert trace["hovertext"][0] == ["<b>a</b>, 1x: +0.010", "<b>a</b>, 4x: n/a", "<b>a</b>, 16x: +inf"]
    assert made.layout["yaxis"]["ticktext"] == ["<b>a</b>", "b"]
    assert json.dumps([made.traces, made.layout], allow_nan=False)


@pytest.mark.parametrize("colour", [heat.BETTER, heat.NEITHER, heat.WORSE])
def test_a_cells_text_can_be_read(colour: str) -> None:
    """By the contrast of WCAG 2, which asks for 4.5."""

    def luminance(colour: str) -> float:
        rgb = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in rgb]
        return sum(share * one for share, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    assert (luminance(colour) + 0.05) / (luminance(heat.INK) + 0.05) > 4.5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", [1, heat.MOST_ROWS])
def test_the_picture_has_readable_cells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: int) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    table = pd.concat([TABLE] * rows).head(rows)
    heat.draw(heat.of_table(table, ["a long name $x$ _"] * rows), "a title", tmp_path / "made.png")
    (figure,) = figures
    figure.dpi = plots.DOTS
    (panel,) = figure.axes
    box = panel.get_window_extent()
    assert box.height / rows > 30
    cells = [text.get_window_extent() for text in panel.texts if text.get_text()]
    assert not any(one.overlaps(other) for at, one in enumerate(cells) for other in cells[:at])
    names = [text.get_window_extent() for text in panel.get_yticklabels()]
    assert all(name.x0 >= 0 and name.x1 <= box.x0 for name in names)
    assert max(figure.get_size_inches()) < 15
