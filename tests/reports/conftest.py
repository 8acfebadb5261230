"""What tests of reports share: hostile names, blocks of every kind, and tables of runs that no test has to train."""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from extrapolate import results
from extrapolate.names import DOCUMENTS_TABLE as DOCUMENTS
from extrapolate.names import TEXT_TABLE as TEXT
from extrapolate.reports import plots
from extrapolate.reports.chart import Axis, Chart, Panel, Series
from extrapolate.reports.page import Block, Cell, Code, Drawing, Grid, Heading, Switch, Table, Text
from extrapolate.reports.svg import Plot

KEPT = Path(__file__).parents[1] / "fixtures/rope"
Row = dict[str, Any]

HOSTILE = [
    "<script>hacked = 1</script>", "<img src=x onerror='hacked = 1'>",
    '"><b>bold</b>', "</script><script>hacked = 1</script>",
    "&lt;b&gt;", "{{ 7 * 7 }}", "<!-- ", "]]>", "x\u202ey\u2028z", "\x1b[31mred\x07",
    "javascript:hacked=1", "a" * 10_000,
    "' onmouseover='hacked = 1", "</title><svg onload=hacked=1>",
]  # fmt: skip


def blocks_about(name: str) -> list[Block]:
    frame = pd.DataFrame({"Model": [name, "x"], name + " ": ["1", name], "loss": [1.5, float("nan")]})
    cells = [[Cell(name), Cell("1.5", 1.5, name, "best")], [Cell("b"), Cell("1.6", 1.6, "n", "equivalent")]]
    chart = Plot(Chart(name, "c.png", [Panel([Series(name, [1], [2])], Axis(name), title=name)]))
    return [
        Heading(1, f"a {name}"), Text(name), Text(name, strong=True), Table(frame, name),
        Grid(["Model", name], cells, name),
        Switch("s", name, {name: [Text("one")], "other": [Code(name), chart]}), Drawing(name, "<svg></svg>"),
    ]  # fmt: skip


@pytest.fixture(scope="session")
def hostile_names() -> list[str]:
    """Names that are not only names."""
    return HOSTILE


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn from here on, which are not encoded."""
    saved: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: saved.append(figure))
    return saved


@pytest.fixture(scope="session")
def page() -> Callable[[str], list[Block]]:
    """Blocks of every kind, with a name wherever there can be one."""
    return blocks_about


@cache
def _kept(name: str, table: results.Table) -> list[Row]:
    return results.read(KEPT / name, table)


def _own_weights(row: Row, kept: Row) -> Row:
    """A row that a test gave to another run: of the same weights it would be of the same run."""
    own = row["run"] == kept["run"] or row.get("weights_sha256") != kept.get("weights_sha256")
    return row if own else row | {"weights_sha256": f"weights of {row['run']}"}


def _write(folder: Path, change: Callable[[Row], Row | None] = dict, documents: bool = True) -> Path:
    folder.mkdir(parents=True)
    for name, table in {TEXT: results.EVALS, DOCUMENTS: results.EVAL_DOCUMENTS}.items():
        if name == DOCUMENTS and not documents:
            continue
        columns = {column.name for column in table.columns}
        pairs = [(row, change(dict(row))) for row in _kept(name, table)]
        changed = [_own_weights(new, row) for row, new in pairs if new is not None]
        rows = [{key: row[key] for key in row if key in columns} for row in changed]
        results.write(folder / name, rows, table)
    return folder


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """Writes the tables of RoPE, as trained and with PI, at 1x and 2x under two protocols, over 15 documents.

    Called with a folder, and with what changes a row of either table, or returns None for a row that is left out.
    """
    return _write


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """Chromium, as Debian packages it, driven by its own driver."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("chromium and chromedriver are not installed: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield made
    made.quit()
