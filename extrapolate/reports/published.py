"""Published tables, and which cells of a study repeat which of their numbers."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from extrapolate import results, specs
from extrapolate.names import AS_TRAINED
from extrapolate.results.columns import REAL, TEXT, Group, Table, always, sometimes

FILE = "published_cells.parquet"  # a study leaves it in its folder, for its report
_NO_CELL = "no cell of the study repeats the row"

CELLS = Table(
    groups=(
        Group(
            "table", "what was published",
            (
                always("table", TEXT, "", "The table's name in the study's file."),
                always("title", TEXT, "", "The table's title."),
                always("source", TEXT, "", "Its source, such as an arXiv id."),
                always("theirs", TEXT, "", "What the paper trained."),
                always("note", TEXT, "", "A note on the table."),
            ),
        ),
        Group(
            "number", "one of its numbers",
            (
                always("row", TEXT, "", "The row's name in the table."),
                always("column", TEXT, "", "The column's name in the table."),
                always("group", TEXT, "", "The group of rows that are compared; an empty string if all are."),
                always(
                    "quantity", TEXT, "",
                    "`loss` (nats per token), `perplexity`, or `time`, relative to the group's first row.",
                ),
                sometimes("factor", REAL, "", "The evaluation length divided by the training length.", "it is a time"),
                always("value", REAL, "", "The published number."),
            ),
        ),
        Group(
            "cell", "a cell of the study that repeats it",
            (
                sometimes("run", TEXT, "", "The name of the cell's run.", _NO_CELL),
                sometimes("extension", TEXT, "", "What is applied at inference.", _NO_CELL),
                sometimes("text", TEXT, "", "The source of its training text.", _NO_CELL),
            ),
        ),
    ),
    key=("table", "row", "column", "run"),
)  # fmt: skip


@dataclass(frozen=True)
class PublishedColumn:
    """A column of a table: its name there, and what it holds.

    factor: the evaluation length / the training length. task: the name of the task in lm-eval.
    """

    name: str
    quantity: Literal["loss", "perplexity", "time", "accuracy"]
    factor: float | None = None
    task: str | None = None


@dataclass(frozen=True)
class PublishedRow:
    """A row of a table: its name there, its numbers, and the settings of the cells that repeat it."""

    name: str
    encoding: str
    values: Sequence[float]
    group: str = ""
    preset: str | None = None
    layers: int | None = None
    extension: str = AS_TRAINED


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper. theirs: what the paper trained. note: what else a reader must know."""

    name: str
    title: str
    source: str
    theirs: str
    note: str
    columns: Sequence[PublishedColumn]
    rows: Sequence[PublishedRow]


@dataclass(frozen=True)
class Repeating:
    """What decides which rows a cell of a study repeats. text: the source of its training text."""

    run: str
    encoding: str
    preset: str
    layers: int
    text: str


def published() -> dict[str, PublishedTable]:
    """The tables that studies can repeat, by name."""
    tasks = of_tasks()
    return {name: table for name, table in _tables().items() if table not in tasks}


def of_tasks() -> list[PublishedTable]:
    """The tables of benchmarks."""
    return [table for table in _tables().values() if any(column.task for column in table.columns)]


@cache
def _tables() -> dict[str, PublishedTable]:
    raw = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for found in raw.values():
        found["columns"] = [PublishedColumn(**one) for one in found["columns"]]
        found["rows"] = [PublishedRow(**one) for one in found["rows"]]
    return {name: PublishedTable(name, **found) for name, found in raw.items()}


def write_cells(folder: Path, names: Sequence[str], cells: Sequence[Repeating]) -> None:
    """Writes what a study's report needs of its published tables to its folder, or removes the file if it has none."""
    if names:
        rows = [row for name in names for row in cell_rows(published()[name], cells)]
        results.write(folder / FILE, rows, CELLS)
    else:
        (folder / FILE).unlink(missing_ok=True)  # of an earlier version of the study


def cell_rows(table: PublishedTable, cells: Sequence[Repeating]) -> Iterator[dict[str, Any]]:
    """A row of CELLS for each number of a table and each cell that repeats it.

    If no cell has one of the paper's sizes, the study is at another scale, and sizes need not match.
    """
    presets = {row.preset for row in table.rows}
    sizes_as_there = any(cell.preset in presets for cell in cells)
    about = {name: getattr(table, name) for name in ("title", "source", "theirs", "note")} | {"table": table.name}
    for row in table.rows:
        fitting = [cell for cell in cells if _repeats(cell, row, sizes_as_there)]
        for column, value in zip(table.columns, row.values, strict=True):
            number = {
                "row": row.name, "column": column.name, "group": row.group, "quantity": column.quantity,
                "factor": column.factor, "value": value,
            }  # fmt: skip
            for cell in fitting:
                yield about | number | {"run": cell.run, "extension": row.extension, "text": cell.text}
            if not fitting:
                yield about | number


def _repeats(cell: Repeating, row: PublishedRow, sizes_as_there: bool) -> bool:
    return (
        specs.parse(cell.encoding) == specs.parse(row.encoding)
        and (row.layers is None or cell.layers == row.layers)
        and (row.preset is None or not sizes_as_there or cell.preset == row.preset)
    )
