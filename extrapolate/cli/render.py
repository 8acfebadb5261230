"""Tables in the terminal, on stdout."""

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table


def print_table(table: pd.DataFrame, title: str) -> None:
    """Prints a table whose cells are text already, or numbers; n/a where there is none."""
    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for place, column in enumerate(table.columns):
        shown.add_column(str(column), justify="left" if place == 0 else "right", no_wrap=True)
    for row in table.itertuples(index=False):
        shown.add_row(*(cell if isinstance(cell, str) else "n/a" if pd.isna(cell) else f"{cell:.3f}" for cell in row))
    console = Console()
    # Not a terminal: as wide as the table, so that nothing is cut off.
    console.print(shown, width=None if console.is_terminal else 200)
