"""Charts on the HTML page: the same pictures as in files, with tooltips and in the page's colours."""

import math
import re
from xml.etree import ElementTree

from extrapolate.reports.chart import Axis, Chart, Panel, Series
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


def test_of_more_than_two_panels_the_page_shows_the_last_first() -> None:
    panels = [Panel([Series("RoPE", [1.0], [2.0])], Axis(), title=f"{at}x") for at in (1, 2, 4)]
    made = Plot(Chart("text", "a.png", panels)).html()
    assert made.count('<figure class="chart">') == 3
    assert 'value="2" checked><span>4x</span>' in made
    assert Plot(Chart("text", "a.png", panels[:2])).html().count('<figure class="chart">') == 1
