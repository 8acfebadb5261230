"""What the tests of pages share; and tables of runs that no test has to train, with other values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from extrapolate import results
from extrapolate.reports.chart import Chart
from extrapolate.reports.page import (
    Block,
    Cell,
    Code,
    Drawing,
    Grid,
    Heading,
    OnlyMarkdown,
    Picture,
    Switch,
    Table,
    Text,
)

KEPT = Path(__file__).parents[1] / "fixtures/format-1/rope"
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
    cells = [[Cell(name), Cell("1.5", 1.5, name, "best")], [Cell("b"), Cell("1.6", 1.6, "n", "tie")]]
    chart = Chart(name, "c.png", [{"x": [1], "y": [2], "name": name}], {"title": {"text": name}})
    return [
        Heading(1, f"a {name}"), Text(name), Text(name, strong=True), Table(frame, name),
        Grid(["Model", name], cells, name),
        Switch("s", name, {name: [Text("one")], "other": [Code(name), chart]}), Picture(name, f"{name}.png"),
        Drawing(name, "<svg></svg>"), OnlyMarkdown(Text("not here")),
    ]  # fmt: skip


@pytest.fixture(params=range(len(HOSTILE)))
def hostile(request: pytest.FixtureRequest) -> str:
    """A name that is not only a name."""
    return HOSTILE[request.param]


@pytest.fixture(scope="session")
def hostile_names() -> list[str]:
    """All of them."""
    return HOSTILE


@pytest.fixture(scope="session")
def page() -> Callable[[str], list[Block]]:
    """Blocks of every kind, with a name wherever there can be one."""
    return blocks_about


def _write(folder: Path, change: Callable[[Row], Row | None] = dict, documents: bool = True) -> Path:
    folder.mkdir(parents=True)
    tables = {"evals.parquet": results.EVALS}
    if documents:
        tables["eval_documents.parquet"] = results.EVAL_DOCUMENTS
    for name, table in tables.items():
        columns = {column.name for column in table.columns}
        changed = [change(row) for row in results.read(KEPT / name, table)]
        rows = [{key: row[key] for key in row if key in columns} for row in changed if row is not None]
        results.write(folder / name, rows, table)
    return folder


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """Writes the tables of RoPE, as trained and with PI, at 1x and 2x under two protocols, over 15 documents.

    Called with a folder, and with what changes a row of either table, or returns None for a row that is left out.
    """
    return _write
