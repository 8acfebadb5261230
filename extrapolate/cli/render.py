"""Tables and text in the terminal, on stdout: no wider than it is, no column left out, no word broken."""

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

from extrapolate.cli.sparkline import sparklines
from extrapolate.terminal import shown

if TYPE_CHECKING:
    import pandas as pd

PIPE_WIDTH = 100  # characters, where there is no terminal and COLUMNS does not say
TALLEST = 4  # lines that a text is folded into before the table is split
MOST_PARTS = 2  # that a table is split into, before its names share a column
GAP = 3  # characters that Rich's table puts between two columns
# A text may be folded after a space, and after a comma that is no thousands separator.
_PIECES = re.compile(r".+?(?:\s+|,(?!\d)\s*|$)")
_NUMBER = re.compile(r"[+-]?\d")


class Kind(Enum):
    """What a column holds: what names its row, numbers, which are never folded, or text."""

    NAME, NUMBER, TEXT = "name", "number", "text"


@dataclass(frozen=True)
class Column:
    """One column of a table, and how narrow it may become: a name is folded into so many lines at most.

    Widths are in characters.
    """

    header: str
    cells: Sequence[str]
    kind: Kind = Kind.TEXT
    lines: int = 1

    @cached_property
    def natural(self) -> int:
        """Nothing is folded."""
        return max(map(cell_len, (self.header, *self.cells)))

    @cached_property
    def least(self) -> int:
        """Every word is whole, and every number."""
        cells = self.cells if self.kind is Kind.NUMBER else [piece for cell in self.cells for piece in _pieces(cell)]
        return max(cell_len(text.rstrip()) for text in (*_pieces(self.header), *cells))

    @cached_property
    def readable(self) -> int:
        """A text takes few lines, and a name one or as many as it may."""
        name = math.ceil(self.natural / self.lines)
        text = math.ceil(self.natural / TALLEST)
        shares = {Kind.NAME: name, Kind.NUMBER: self.least, Kind.TEXT: text}
        return max(self.least, shares[self.kind])


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """How the program ends is said in one place."""
        raise BrokenPipeError


def console() -> Console:
    """Stdout: as wide as the terminal, or where there is none as COLUMNS says, else PIPE_WIDTH."""
    made = _Stdout()
    columns = os.environ.get("COLUMNS", "")
    if made.is_terminal or (columns.isdecimal() and int(columns)):
        return made
    return _Stdout(width=PIPE_WIDTH)


def print_table(table: "pd.DataFrame", title: str, names: int | None = None) -> None:
    """Prints a table of text: words to the left, numbers to the right.

    names: how many of its first columns name a row (default: the first, and what is words of those that follow it).
    Where the table is too wide it is split, and these columns are in every part. In a terminal, a table of losses by
    length has a column that draws them.
    """
    texts = [[str(value) for value in table[column]] for column in table.columns]
    numbers = [_are_numbers(str(header), cells) for header, cells in zip(table.columns, texts, strict=True)]
    if names is None:
        names = next((at for at in range(1, len(numbers)) if numbers[at]), len(numbers))
    kinds = [Kind.NAME if at < names else Kind.NUMBER if many else Kind.TEXT for at, many in enumerate(numbers)]
    parts = zip(table.columns, texts, kinds, strict=True)
    columns = [Column(str(header), cells, kind) for header, cells, kind in parts]
    target = console()
    drawn = sparklines(table) if target.is_terminal and not target.options.ascii_only else None
    if drawn is not None:
        columns.insert(names, Column("by length", drawn))
    print_columns(columns, title)


def print_columns(columns: Sequence[Column], title: str) -> None:
    """Prints columns as a table, or as several where they do not fit side by side."""
    target = console()
    columns = [replace(one, header=shown(one.header), cells=[shown(cell) for cell in one.cells]) for one in columns]
    target.print(Text(fold(shown(title), target.width), style="italic"), soft_wrap=True)
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
        # A word that is longer than the terminal is wide is shown whole nevertheless.
        (target if needed <= target.width else _Stdout(width=needed)).print(table)


def print_text(text: str) -> None:
    """Prints paragraphs, folded at spaces."""
    target = console()
    for line in text.splitlines():
        target.print(Text(fold(shown(line), target.width)), soft_wrap=True)


def print_json(rows: Iterable[Mapping[Any, Any]]) -> None:
    """Prints each row as a line of JSON, which has no infinite numbers: they are text, `inf`, and so is `nan`."""
    for row in rows:
        line = {name: _in_json(value) for name, value in row.items()}
        sys.stdout.write(json.dumps(line, default=str, allow_nan=False) + "\n")


def _in_json(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_in_json, value))
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_line(text: str) -> None:
    """Prints one line, as long as it is."""
    print(shown(text))


def fold(text: str, width: int) -> str:
    """The text in lines of at most `width` characters; a word that is longer has a line of its own."""
    lines: list[str] = [""]
    for piece in _pieces(text):
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _pieces(text: str) -> list[str]:
    return _PIECES.findall(text) or [""]


def _are_numbers(header: str, cells: Sequence[str]) -> bool:
    return any(character.isdigit() for character in header) or any(map(_NUMBER.match, cells))


def _around(columns: Sequence[Column]) -> int:
    """What a table takes beside its cells: a space at both ends, and one on both sides of each column."""
    return GAP * (len(columns) - 1) + 4


def _arranged(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """The columns in groups that can be read at this width.

    Where that makes them fewer, long names are folded. Where they are many still, the names of a row share a column.
    """
    folded = [replace(column, lines=2) if column.kind is Kind.NAME else column for column in columns]
    found = min((_blocks(tried, width) for tried in (columns, folded)), key=len)
    return found if len(found) <= MOST_PARTS else min(found, _blocks(_joined(columns), width), key=len)


def _joined(columns: Sequence[Column]) -> Sequence[Column]:
    """The columns, with those that name a row in one."""
    names = [column for column in columns if column.kind is Kind.NAME]
    if len(names) < 2:
        return columns
    cells = [" ".join(row) for row in zip(*(column.cells for column in names), strict=True)]
    one = Column(" ".join(column.header for column in names), cells, Kind.NAME, lines=len(names))
    return [one, *(column for column in columns if column.kind is not Kind.NAME)]


def _blocks(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """The columns in groups that can be read at this width, in their order, with those that name the row in each."""
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
    """Widths that fill the room: readable ones if they fit, each made wider by an equal share of what it lacks."""
    room = width - _around(columns)
    low, high = [c.readable for c in columns], [c.natural for c in columns]
    if sum(low) > room:
        low, high = [c.least for c in columns], low
    lacking = [most - least for least, most in zip(low, high, strict=True)]
    share = min(1.0, max(0, room - sum(low)) / max(1, sum(lacking)))
    return [least + int(share * more) for least, more in zip(low, lacking, strict=True)]
