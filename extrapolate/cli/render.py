"""Tables in the terminal, on stdout."""

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table


def print_table(table: pd.DataFrame, title: str) -> None:
    """Prints a table whose cells are text already, or numbers; n/a where there is none."""
    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for place, column in enumerate(table.columns):
        text = place == 0 or table[column].map(lambda cell: isinstance(cell, str) and not cell[:1].isdigit()).all()
        shown.add_column(str(column), justify="left" if text else "right")
    for row in table.itertuples(index=False):
        shown.add_row(*(cell if isinstance(cell, str) else "n/a" if pd.isna(cell) else f"{cell:.3f}" for cell in row))
    wide_console().print(shown)


def wide_console() -> Console:
    """Stdout: as wide as the terminal, or wide enough for any table where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=200)
