"""assets/charts.js in a real browser: it draws what is seen, in the page's colours, and shows names as they are."""

from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports.chart import Axis, Chart, Panel, Series, smoothed
from extrapolate.reports.sections.training import KEPT
from extrapolate.reports.traces import Plot

NAMES = ["<b>x</b>", "<img src=x onerror='document.title=\"hacked\"'>", "&lt;i&gt; %{x} 5 %", "a<br>b", "RoPE"]
STYLE = {"color": "#0068A8", "linestyle": "-", "marker": "o"}
LOSSES = np.random.default_rng(0).normal(4, 0.3, 50).round(4)
PAGE = """<!doctype html><meta charset="utf-8"><style>
:root { --ink: #101010; --soft: #505050; --grid: #d0d0d0; --paper: #ffffff }
:root[data-theme=dark] { --ink: #e0e0e0; --soft: #a0a0a0; --grid: #303030; --paper: #15181c }
.plot { width: 800px; height: 400px }
</style><div>%s</div><div id="tab" hidden>%s</div><script>%s</script><script>%s; drawCharts();</script>"""


def charts() -> tuple[Plot, Plot]:
    lines = [Series(name, [1.0, 2.0], [4.0, 4.5], STYLE) for name in NAMES]
    first = Chart("names", "a.png", [Panel(lines, Axis("<i>x</i>"), Axis("y"))])
    steps = Series("RoPE", np.arange(50), LOSSES, STYLE, seconds=range(100, 150))
    diverged = np.where(np.arange(50) == 10, np.inf, LOSSES)
    panel = Panel(
        [
            Series("RoPE", np.arange(50), LOSSES + 1, STYLE, "thin"),
            steps,
            Series("NoPE", np.arange(50), diverged, STYLE),
        ],
        Axis("training tokens"),
        Axis("loss"),
    )
    return Plot(first), Plot(Chart("training", "b.png", [panel], kept=KEPT))


@pytest.fixture(scope="module")
def page(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from plotly.offline import get_plotlyjs

    names, training = charts()
    script = (resources.files("extrapolate.reports") / "assets/charts.js").read_text(encoding="utf-8")
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(PAGE % (names.html(), training.html(), get_plotlyjs(), script), encoding="utf-8")
    driver.get(file.as_uri())
    return driver


def drawn(page: Any, at: int) -> Any:
    """A chart, once it is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    plot = page.find_elements("css selector", ".plot")[at]
    WebDriverWait(page, 20).until(lambda _: plot.get_attribute("data-drawn"))
    return plot


def test_names_are_shown_as_they_are(page: Any) -> None:
    plot = drawn(page, 0)
    shown = page.execute_script(
        "return [...arguments[0].querySelectorAll('.legendtext')].map((t) => t.textContent)", plot
    )
    assert shown == NAMES
    assert page.execute_script("return arguments[0].querySelector('.xtitle').textContent", plot) == "<i>x</i>"
    assert "hacked" not in page.title


def test_no_button_sends_the_data_anywhere(page: Any) -> None:
    buttons = drawn(page, 0).find_elements("css selector", ".modebar-btn")
    named = [button.get_attribute("data-title").lower() for button in buttons]  # plotly 6 writes png
    assert named == ["download plot as a png", "zoom", "pan", "autoscale", "reset axes"]


def test_a_chart_has_the_colours_of_the_page_and_changes_with_them(page: Any) -> None:
    plot = drawn(page, 0)
    colours = "const l = arguments[0]._fullLayout; return [l.paper_bgcolor, l.font.color, l.xaxis.gridcolor]"
    assert page.execute_script(colours, plot) == ["#ffffff", "#101010", "#d0d0d0"]
    change = "document.documentElement.dataset.theme = arguments[0]; document.dispatchEvent(new Event('themechange'))"
    page.execute_script(change, "dark")
    assert page.execute_script(colours, plot) == ["#15181c", "#e0e0e0", "#303030"]


def test_a_hidden_chart_is_drawn_when_it_is_shown_and_smoothed_as_the_reader_wishes(page: Any) -> None:
    drawn(page, 0)
    hidden = page.find_elements("css selector", ".plot")[1]
    assert not hidden.get_attribute("data-drawn")
    page.execute_script("document.getElementById('tab').hidden = false")
    plot = drawn(page, 1)
    y = "return arguments[0].data.map((line) => [...line.y])"
    behind, average, ended = page.execute_script(y, plot)
    assert behind == (LOSSES + 1).round(4).tolist()
    assert average == pytest.approx(smoothed(pd.Series(LOSSES), KEPT).tolist())
    assert ended == [*average[:10], *[None] * 40]  # at the first infinite loss, as in the picture
    slider = page.find_element("css selector", "input[type=range]")
    page.execute_script("arguments[0].value = 0; arguments[0].dispatchEvent(new Event('input'))", slider)
    assert page.execute_script(y, plot)[:2] == [behind, LOSSES.tolist()]
    assert slider.find_element("xpath", "..").text.startswith("moving average keeps")
    _, by_time = page.find_elements("css selector", "input[type=radio]")
    by_time.click()
    assert page.execute_script("return arguments[0].data.map((line) => line.x[1])", plot) == [None, 101, None]
    assert page.execute_script("return arguments[0]._fullLayout.xaxis.title.text", plot) == "training time (seconds)"
