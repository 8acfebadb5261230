"""Tables in the terminal, on stdout."""

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_table(table: pd.DataFrame, title: str) -> None:
    """Prints a table of text: the first column and columns of words to the left, numbers to the right."""
    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for place, column in enumerate(table.columns):
        words = place == 0 or not table[column].str.contains(r"\d", regex=True).any()
        shown.add_column(str(column), justify="left" if words else "right", no_wrap=words)
    for row in table.itertuples(index=False):
        shown.add_row(*map(escape, row))
    wide_console().print(shown)


def wide_console() -> Console:
    """Stdout: as wide as the terminal, or wide enough for any table where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=200)
