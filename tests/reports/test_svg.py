"""Charts on the HTML page: the same pictures as in files, with tooltips and in the page's colours."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from extrapolate.reports.chart import Axis, Chart, Heat, Panel, Series
from extrapolate.reports.svg import Plot, drawn

STYLE = {"color": "#0068A8", "linestyle": "-", "marker": "o"}
SVG = "{http://www.w3.org/2000/svg}"


def read(*series: Series, y: Axis = Axis()) -> ElementTree.Element:
    return ElementTree.fromstring(drawn(Chart("text", "a.png", [Panel(series, Axis("length", "log"), y)])))


def titles(group: ElementTree.Element) -> list[str | None]:
    return [title.text for title in group.iter(f"{SVG}title")]


def test_a_line_says_its_name_and_its_points_their_values() -> None:
    root = read(
        Series("RoPE", [1, 2, 4], [4.0, math.nan, 4.5], STYLE, texts=["", "", ", worse"]),
        Series("grey", [1, 2], [5, 5]),
    )
    grey, named = [group for group in root.iter(f"{SVG}g") if group.get("class") == "series"]
    assert titles(named) == ["RoPE", "RoPE, 1: 4", "RoPE, 4: 4.5, worse"]
    assert titles(grey) == ["grey"]


def test_the_page_decides_the_colours_of_text_and_axes_and_no_style_reaches_it() -> None:
    made = drawn(Chart("text", "a.png", [Panel([Series("RoPE", [1, 2], [4, 5], STYLE)], Axis("x"), Axis("y"))]))
    assert "currentColor" in made
    assert "#000000" not in made
    assert not re.search("<style|<metadata|<script", made)
    assert "#0068a8" in made


def test_ids_differ_between_charts_and_are_the_same_each_time() -> None:
    panels = [Panel([Series("RoPE", [1, 2], [4, 5], STYLE)], Axis())]
    one, again, other = (drawn(Chart("text", name, panels)) for name in ("a.png", "a.png", "b.png"))
    assert one == again
    ids = [set(re.findall(r'(?<!xlink:)id="([mp][0-9a-f]+)"', made)) for made in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "]]>&amp;\x00", "$\\frac{1}{0}$"])
def test_a_name_is_only_text(name: str) -> None:
    made = drawn(Chart(name, "a.png", [Panel([Series(name, [1, 2], [4, 5], STYLE)], Axis())]))
    ElementTree.fromstring(made)
    assert "<script" not in made


def test_of_more_than_two_panels_the_page_shows_the_last_first() -> None:
    panels = [Panel([Series("RoPE", [1.0], [2.0])], Axis(), title=f"{at}x") for at in (1, 2, 4)]
    made = Plot(Chart("text", "a.png", panels)).html()
    assert made.count('<figure class="chart">') == 3
    assert 'value="2" checked><span>4x</span>' in made
    assert Plot(Chart("text", "a.png", panels[:2])).html().count('<figure class="chart">') == 1


def test_a_map_is_drawn_too() -> None:
    made = drawn(Chart("text", "a.png", Heat("title", ["<b>a</b>"], ["1x", "4x"], np.array([[0.5, math.nan]]), 1.0)))
    texts = ["".join(text.itertext()) for text in ElementTree.fromstring(made).iter(f"{SVG}text")]
    assert {"<b>a</b>", "1x", "4x", "0.500"} <= set(texts)


def test_forty_models_at_five_lengths_with_long_curves_stay_small() -> None:
    lengths, long = [1, 2, 4, 8, 16], np.arange(1, 2001)
    losses = [Series(f"m{at}", lengths, [4 + at / 10] * 5, STYLE if at < 20 else None) for at in range(240)]
    curves = [Series(f"m{at}", long, 4 + np.sin(long * at) / long, STYLE if at < 20 else None) for at in range(40)]
    assert sum(len(drawn(Chart("text", "a.png", [Panel(one, Axis())]))) for one in (losses, curves)) < 900_000
