"""Reports in a real browser: Chromium, as Debian packages it, driven by its own driver."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from extrapolate.reports.page import Cell, Grid, Table, html

DESKTOP, PHONE = (1280, 900), (390, 800)


@pytest.fixture
def show(driver: Any, tmp_path: Path) -> Callable[..., Any]:
    """Opens a page, given as text or as a file, in a window of some size; the driver is returned."""

    def opened(content: str | Path, size: tuple[int, int] = DESKTOP) -> Any:
        if isinstance(content, str):
            (tmp_path / "page.html").write_text(content, encoding="utf-8")
            content = tmp_path / "page.html"
        for log in ("browser", "performance"):
            driver.get_log(log)
        width, height = size
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        driver.get(content.as_uri())
        return driver

    return opened


def requests(driver: Any) -> list[str]:
    """What the page asked for, but for itself and what it holds."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
    return [
        address for address in asked if not address.startswith(("data:", "blob:")) and address != driver.current_url
    ]


def choose_theme(driver: Any, name: str) -> str:
    """Chooses a theme, and returns the colour behind the page."""
    script = "const s = document.getElementById('theme'); s.value = arguments[0]; s.dispatchEvent(new Event('change'));"
    driver.execute_script(script, name)
    return str(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))


def column(driver: Any, table: str, at: int) -> list[str]:
    """The texts of a column of a table, from top to bottom; hidden rows are left out."""
    script = """
        const rows = [...document.querySelectorAll(arguments[0] + " tbody tr")].filter((row) => !row.hidden);
        return rows.map((row) => row.cells[arguments[1]].firstChild.textContent);
    """
    return list(driver.execute_script(script, table, at))


def test_a_click_sorts_by_number_or_by_name_and_another_turns_the_order_round(show) -> None:
    frame = pd.DataFrame(
        {
            "Model": ["b 10", "b 9", "a", "c"], "Loss (ev=1)": [10.0, float("nan"), 9.5, 9.6],
            "ev=1": ["+0.108 [-0.1, 0.3]", "n/a", "-0.09", "+0.02 *"],
            "Tokens": ["1,000,000", "900,000", "5,120", "n/a"], "Say": ["yes", "no", "", "no"],
        }
    )  # fmt: skip
    browser = show(html([Table(frame)], "a"))
    model, loss, difference, count, say = browser.find_elements("css selector", "th button")
    loss.click()
    assert column(browser, "table", 1) == ["9.500", "9.600", "10.000", "n/a"]
    loss.click()
    assert column(browser, "table", 1) == ["10.000", "9.600", "9.500", "n/a"]
    heads = browser.find_elements("css selector", "thead th")
    assert [head.get_attribute("aria-sort") for head in heads] == ["none", "descending", "none", "none", "none"]
    model.send_keys("\n")  # by keyboard
    assert column(browser, "table", 0) == ["a", "b 9", "b 10", "c"]
    difference.click()
    assert column(browser, "table", 2) == ["-0.09", "+0.02 *", "+0.108", "n/a"]  # the interval stands below
    count.click()
    assert column(browser, "table", 3) == ["5,120", "900,000", "1,000,000", "n/a"]
    assert [one.value_of_css_property("text-align") for one in (difference, say)] == ["right", "left"]


def test_long_tables_are_filtered(show) -> None:
    frame = pd.DataFrame({"Model": [f"RoPE {n}" for n in range(40)], "Loss (ev=1)": range(40)})
    browser = show(html([Table(frame)], "a"))
    browser.find_element("css selector", ".filter").send_keys("rope 3")
    assert column(browser, "table", 0) == ["RoPE 3", *(f"RoPE {n}" for n in range(30, 40))]


def test_switches_show_one_view_notes_are_in_reach_and_themes_differ(show, page) -> None:
    browser = show(html(page("RoPE"), "a"))
    views = browser.find_elements("css selector", ".view")
    assert [view.is_displayed() for view in views] == [True, False]
    browser.find_elements("css selector", ".switch label")[1].click()
    assert [view.is_displayed() for view in views] == [False, True]
    note = browser.find_element("css selector", "td .note")
    assert not note.is_displayed()
    browser.find_element("css selector", ".notes").click()
    assert note.is_displayed()
    light, dark = choose_theme(browser, "light"), choose_theme(browser, "dark")
    assert light == "rgb(255, 255, 255)"
    assert dark == "rgb(21, 24, 28)"


def test_hostile_names_run_nothing_and_break_no_layout(show, page, hostile_names, tmp_path) -> None:
    blocks = [block for name in [*hostile_names, "w" * 300] for block in page(name)]
    (tmp_path / "hostile.html").write_text(html(blocks, hostile_names[0]), encoding="utf-8")
    for size in (DESKTOP, PHONE):
        browser = show(tmp_path / "hostile.html", size)
        assert browser.execute_script("return typeof hacked") == "undefined"
        assert requests(browser) == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]


def test_a_wide_table_with_marks_scrolls_and_the_page_does_not(show) -> None:
    cells = [Cell("RoPE"), *(Cell("1.600", 1.6, "n", "equivalent") for _ in range(12))]
    browser = show(html([Grid(["Model", *(f"{n}x" for n in range(12))], [cells])], "a"), PHONE)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]


def look_through(browser: Any, size: tuple[int, int]) -> None:
    """Opens all that can be opened: every chart is drawn, nothing went wrong, and nothing is too wide."""
    browser.execute_script("for (const v of document.querySelectorAll('.view')) v.hidden = false")
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    heights = "[...document.querySelectorAll('figure.chart svg')].map(one => one.getBoundingClientRect().height)"
    found = browser.execute_script(f"return {heights}")
    assert len(found) == len(browser.find_elements("css selector", "figure.chart"))
    assert min(found) > 50
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert requests(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]


def test_a_real_report_opens_on_a_phone_without_error_or_request(show, reported) -> None:
    browser = show(reported / "report.html", PHONE)
    right = "element => element.getBoundingClientRect().right"
    first = "[...document.querySelector('table').querySelectorAll('caption, thead th')]"
    heads = browser.execute_script(f"return {first}.map(one => [one.innerText, ({right})(one)])")
    assert {"1x", "2x", "4x", "rank at 4x"} <= {" ".join(text.split()) for text, _ in heads}
    assert [text for text, at in heads if at > PHONE[0]] == []  # the title and all columns are in view
    look_through(browser, PHONE)


def test_the_page_of_twelve_models_of_two_seeds_shows_every_name(show, cli, write_run, tmp_path) -> None:
    for at in range(24):
        own = {"run": f"m{at}", "model": f"model {at // 2}", "config_hash": str(at // 2), "seed": at % 2}

        def change(row, own=own, at=at):
            return row | own | {"loss": row["loss"] + 0.02 * at} if row["extension"] == "as-trained" else None

        write_run(tmp_path / f"study/m{at}", change)
    cli("report", "study").succeeded()
    browser = show(tmp_path / "report/report.html")
    look_through(browser, DESKTOP)
    first = "document.querySelector('figure.chart')"
    outside = f"""
        const plot = {first}.querySelector('.plot').getBoundingClientRect();
        return [...{first}.querySelectorAll('text')].map((one) => [one.textContent, one.getBoundingClientRect()])
            .filter(([, box]) => box.right > plot.right + 1 || box.bottom > plot.bottom + 1).map(([text]) => text);
    """
    assert browser.execute_script(outside) == []
    names = set(browser.execute_script(f"return [...{first}.querySelectorAll('text')].map((one) => one.textContent)"))
    assert {f"model {at}" for at in range(12)} <= names


def test_a_line_says_what_it_is_and_text_has_the_colour_of_the_theme(show, page) -> None:
    browser = show(html(page("RoPE"), "a"))
    assert "RoPE" in browser.execute_script("return document.querySelector('.series title').textContent")
    colour = "return getComputedStyle(document.querySelector('figure.chart text')).fill"
    choose_theme(browser, "light")
    light = browser.execute_script(colour)
    choose_theme(browser, "dark")
    assert (light, browser.execute_script(colour)) == ("rgb(27, 31, 36)", "rgb(231, 234, 238)")
