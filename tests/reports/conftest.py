"""What tests of reports share: hostile names, blocks of every kind, and tables of runs that no test has to train."""

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from extrapolate import results
from extrapolate.reports.chart import Axis, Chart, Panel, Series
from extrapolate.reports.page import (
    Block,
    Cell,
    Code,
    Drawing,
    Grid,
    Heading,
    Switch,
    Table,
    Text,
)
from extrapolate.reports.traces import Plot

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


def _own_weights(row: Row, kept: Row) -> Row:
    """A row that a test gave to another run: of the same weights it would be of the same run."""
    own = row["run"] == kept["run"] or row.get("weights_sha256") != kept.get("weights_sha256")
    return row if own else row | {"weights_sha256": f"weights of {row['run']}"}


def _write(folder: Path, change: Callable[[Row], Row | None] = dict, documents: bool = True) -> Path:
    folder.mkdir(parents=True)
    tables = {"evals.parquet": results.EVALS}
    if documents:
        tables["eval_documents.parquet"] = results.EVAL_DOCUMENTS
    for name, table in tables.items():
        columns = {column.name for column in table.columns}
        pairs = [(row, change(row)) for row in results.read(KEPT / name, table)]
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


# Encodings of a study, each with the run of the fixture `evaluated` whose tables it takes, and that run's model.
STUDY = {
    **dict.fromkeys(["RoPE", "p-RoPE", "xPos", "FoPE"], ("rope", "RoPE")),
    **dict.fromkeys(["ALiBi", "KERPLE", "T5 bias", "FoX", "Sinusoidal"], ("none", "NoPE")),
    **dict.fromkeys(["ExPE", "ExQPE"], ("expe", "ExPE")),
    "Learned": ("learned", "Learned"),
}


@pytest.fixture
def study(evaluated: Path, tmp_path: Path) -> Path:
    """Runs of twelve encodings and two seeds with two checkpoints each: real tables, whose names and losses change."""
    for number, (name, (base, model)) in enumerate(STUDY.items()):
        for seed in (0, 1):
            folder, rng = tmp_path / f"study/{name}-s{seed}", np.random.default_rng([number, seed])
            folder.mkdir(parents=True)
            own = {"run": folder.name, "encoding": name.lower(), "display": name, "config_hash": name, "seed": seed}
            for file, table in (("evals", results.EVALS), ("eval_documents", results.EVAL_DOCUMENTS)):
                rows: list[Row] = []
                for row in results.read(evaluated / base / f"{file}.parquet", table):
                    if row["protocol"] != "windows":
                        continue  # one is enough, and half the work
                    new = {key: own.get(key, row[key]) for key in row} | {"model": row["model"].replace(model, name)}
                    if row["loss"] is not None:
                        new["loss"] += 0.02 * number + (0.3 - 0.05 * number) * math.log2(row["factor"])
                        new["loss"] += 0.05 * seed + 0.02 * math.cos(7 * number + 3 * seed + row["factor"])
                    early = new | {"step": 1, "loss": row["loss"] and new["loss"] + 0.5}
                    rows += [early | ({"tokens": 512} if "tokens" in row else {}), new]
                results.write(folder / f"{file}.parquet", rows, table)
            log = results.read_frame(evaluated / base / "metrics.parquet")
            log["loss"] += 0.02 * number + rng.normal(0, 0.1, len(log))
            results.write_frame(folder / "metrics.parquet", log)
    return tmp_path / "study"


@pytest.fixture(scope="module")
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
