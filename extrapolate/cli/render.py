"""Prints tables and text to stdout, within the width of the terminal: no column is left out, no word is broken."""

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from extrapolate.terminal import escape_unprintable

if TYPE_CHECKING:
    import pandas as pd

PIPE_WIDTH = 100  # characters, without a terminal and COLUMNS
TALLEST = 4  # lines that a text is folded into before the table is split
MOST_PARTS = 2  # of a table that is split, before the columns that name its rows are joined
GAP = 3  # characters that Rich's table puts between two columns
# A text may be folded after a space, and after a comma that is no thousands separator.
_PIECES = re.compile(r".+?(?:\s+|,(?!\d)\s*|$)")
_NUMBER = re.compile(r"[+-]?\d")
# In a table of losses by length, the headers of its losses; and in one that has a column `control`.
_LOSS, _LOSS_BESIDE_CONTROL = re.compile(r"Loss \(ev=.*\)"), re.compile(r"ev=.*")
BLOCKS, MISSING = "▁▂▃▄▅▆▇█", "·"
LEAST, MOST = 0.1, 2.0  # nats from the lowest block to the highest: neither blows up noise nor flattens the rest


class Kind(Enum):
    """What a column holds: names of rows, numbers, which are never folded, or text."""

    NAME, NUMBER, TEXT = "name", "number", "text"


@dataclass(frozen=True)
class Column:
    """One column of a table. lines: the most lines that a name is folded into. Widths are in characters."""

    header: str
    cells: Sequence[str]
    kind: Kind = Kind.TEXT
    lines: int = 1

    @cached_property
    def natural(self) -> int:
        """The width at which no cell has to be wrapped."""
        return max(map(cell_len, (self.header, *self.cells)))

    @cached_property
    def least(self) -> int:
        """The width at which every word and number is whole."""
        cells = self.cells if self.kind is Kind.NUMBER else [piece for cell in self.cells for piece in _pieces(cell)]
        return max(cell_len(text.rstrip()) for text in (*_pieces(self.header), *cells))

    @cached_property
    def readable(self) -> int:
        """The width at which a text takes at most TALLEST lines, and a name at most `lines`."""
        if self.kind is Kind.NUMBER:
            return self.least
        return max(self.least, math.ceil(self.natural / (self.lines if self.kind is Kind.NAME else TALLEST)))


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """Raises, instead of exiting: `ending` reports how the program ends."""
        raise BrokenPipeError


def console() -> Console:
    """Stdout, as wide as the terminal; without one, as wide as COLUMNS or else PIPE_WIDTH."""
    made = _Stdout()
    columns = os.environ.get("COLUMNS", "")
    if made.is_terminal or (columns.isdecimal() and int(columns)):
        return made
    return _Stdout(width=PIPE_WIDTH)


def print_table(table: "pd.DataFrame", title: str, names: int | None = None) -> None:
    """Prints a table of text, with words to the left and numbers to the right.

    names: how many of the first columns name a row (default: those before the first column of numbers, at least one).
    They are repeated in every part of a table that is too wide and is split. In a terminal, a table of losses by length
    gets a column that draws them.
    """
    texts = [[str(value) for value in table[column]] for column in table.columns]
    numbers = [
        any(character.isdigit() for character in str(header)) or any(map(_NUMBER.match, cells))
        for header, cells in zip(table.columns, texts, strict=True)
    ]
    if names is None:
        names = next((at for at in range(1, len(numbers)) if numbers[at]), len(numbers))
    kinds = [Kind.NAME if at < names else Kind.NUMBER if many else Kind.TEXT for at, many in enumerate(numbers)]
    columns = list(map(Column, map(str, table.columns), texts, kinds))
    target = console()
    drawn = sparklines(table) if target.is_terminal and not target.options.ascii_only else None
    if drawn is not None:
        columns.insert(names, Column("by length", drawn))
    print_columns(columns, title)


def print_columns(columns: Sequence[Column], title: str) -> None:
    """Prints columns as a table, or as several tables if they do not fit side by side."""
    target = console()
    columns = [
        replace(one, header=escape_unprintable(one.header), cells=[escape_unprintable(cell) for cell in one.cells])
        for one in columns
    ]
    target.print(Text(fold(escape_unprintable(title), target.width), style="italic"), soft_wrap=True)
    for block in _arranged(columns, target.width):
        widths = _widths(block, target.width)
        table = Table(box=box.SIMPLE_HEAD)
        for column, width in zip(block, widths, strict=True):
            justify: JustifyMethod = "right" if column.kind is Kind.NUMBER else "left"
            # Text, and no markup: a name can have brackets and colons.
            table.add_column(Text(fold(column.header, width)), justify=justify, no_wrap=True, width=width)
        for row in zip(*(column.cells for column in block), strict=True):
            table.add_row(*(Text(fold(cell, width)) for cell, width in zip(row, widths, strict=True)))
        needed = _around(block) + sum(widths)
        # A word that is longer than the width of the terminal is still shown whole.
        (target if needed <= target.width else _Stdout(width=needed)).print(table)


def print_text(text: str) -> None:
    """Prints paragraphs, folded at spaces."""
    target = console()
    for line in text.splitlines():
        target.print(Text(fold(escape_unprintable(line), target.width)), soft_wrap=True)


def print_json(rows: Iterable[Mapping[Any, Any]]) -> None:
    """Prints each row as a line of JSON. Infinite numbers and NaN, which JSON does not have, become text: `inf`."""
    for row in rows:
        line = {name: _in_json(value) for name, value in row.items()}
        sys.stdout.write(json.dumps(line, default=str, allow_nan=False) + "\n")


def records(table: "pd.DataFrame") -> list[dict[Any, Any]]:
    """The rows of a table for `print_json`, with None for missing values."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def _in_json(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_in_json, value))
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_line(text: str) -> None:
    """Prints one line without folding it."""
    print(escape_unprintable(text))


def fold(text: str, width: int) -> str:
    """Folds a text into lines of at most `width` characters. A longer word gets a line of its own."""
    lines: list[str] = [""]
    for piece in _pieces(text):
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _pieces(text: str) -> list[str]:
    return _PIECES.findall(text) or [""]


def _around(columns: Sequence[Column]) -> int:
    """The width that a table needs besides its cells: a space at both ends, and one on both sides of each column."""
    return GAP * (len(columns) - 1) + 4


def _arranged(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """The columns in groups that are readable at this width.

    Long names are folded if that makes fewer groups. If there are still too many, the names of a row share a column.
    """
    folded = [replace(column, lines=2) if column.kind is Kind.NAME else column for column in columns]
    found = min((_blocks(tried, width) for tried in (columns, folded)), key=len)
    return found if len(found) <= MOST_PARTS else min(found, _blocks(_joined(columns), width), key=len)


def _joined(columns: Sequence[Column]) -> Sequence[Column]:
    """The columns, with those that name a row joined into one."""
    names = [column for column in columns if column.kind is Kind.NAME]
    if len(names) < 2:
        return columns
    cells = [" ".join(row) for row in zip(*(column.cells for column in names), strict=True)]
    one = Column(" ".join(column.header for column in names), cells, Kind.NAME, lines=len(names))
    return [one, *(column for column in columns if column.kind is not Kind.NAME)]


def _blocks(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """The columns in groups that are readable at this width, in order, each with the columns that name the row."""
    room = width - _around(columns)
    if sum(column.readable for column in columns) <= room or all(column.kind is Kind.NAME for column in columns):
        return [list(columns)]
    groups: list[list[Column]] = [[]]
    for column in columns:
        if column.kind is Kind.NAME:
            continue
        wider = [c for c in columns if c.kind is Kind.NAME or c in groups[-1] or c is column]
        if groups[-1] and sum(c.readable for c in wider) + _around(wider) > width:
            groups.append([])
        groups[-1].append(column)
    return [[c for c in columns if c.kind is Kind.NAME or c in group] for group in groups]


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """Readable widths if they fit, or else the least; what room is left is shared in proportion to what they lack."""
    room = width - _around(columns)
    low, high = [c.readable for c in columns], [c.natural for c in columns]
    if sum(low) > room:
        low, high = [c.least for c in columns], low
    lacking = [most - least for least, most in zip(low, high, strict=True)]
    share = min(1.0, max(0, room - sum(low)) / max(1, sum(lacking)))
    return [least + int(share * more) for least, more in zip(low, lacking, strict=True)]


def sparklines(table: "pd.DataFrame") -> list[str] | None:
    """Draws the losses by length of each row as a line of blocks, all on one scale.

    Returns None if the table does not hold losses at several lengths. A loss that is at least MOST above the lowest one
    of the table is the highest block.
    """
    header = _LOSS_BESIDE_CONTROL if "control" in table.columns else _LOSS
    columns = [column for column in table.columns if header.fullmatch(str(column))]
    try:
        losses = [[None if cell == "n/a" else float(cell) for cell in row] for row in table[columns].to_numpy()]
    except (TypeError, ValueError):  # such as differences with their intervals
        return None
    known = [loss for row in losses for loss in row if loss is not None and math.isfinite(loss)]
    if len(columns) < 2 or not known:
        return None
    low = min(known)
    step = min(MOST, max(LEAST, max(known) - low)) / (len(BLOCKS) - 1)

    def block(loss: float | None) -> str:
        if loss is None or math.isnan(loss):
            return MISSING
        return BLOCKS[round(min((loss - low) / step, len(BLOCKS) - 1))]

    return ["".join(map(block, row)) for row in losses]
