"""The tables of docs/results/expe-table-2.md, from the rows beside it."""

from pathlib import Path

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.reports import published
from extrapolate.reports.page import Table

FOLDER = Path(__file__).parent / "results" / "expe-table-2-books"
PAPER = "expe-table-2"
LENGTHS = ("loss at 1x", "2x", "4x", "8x", "16x")
EXTENDED = 28_016_640  # tokens: the last checkpoint at which every extension was evaluated


def _rows() -> pd.DataFrame:
    return pd.read_parquet(FOLDER / "evals.parquet")


def _table(heading: tuple[str, ...], rows: list[list[str]]) -> str:
    return Table(pd.DataFrame(rows, columns=list(heading))).markdown()


def _losses(rows: pd.DataFrame) -> list[str]:
    return [f"{loss:.3f}" for loss in rows.sort_values("factor")["loss"]]


def beside_the_paper() -> str:
    """The paper's losses, and ours after the most tokens that all models have."""
    rows = _rows()
    last = rows[(rows["extension"] == AS_TRAINED) & (rows["tokens"] == rows["tokens"].max())]
    lines = []
    for row in published.published()[PAPER].rows:
        mine = last[last["encoding"] == row.encoding]
        lines += [[row.name, "paper", *map(str, row.values), "", ""], ["", "ours", *_losses(mine)]]
    return _table(("model", "", *LENGTHS), lines)


def extended() -> str:
    """Losses with what was applied at inference, the best at 16x first."""
    rows = _rows()
    rows = rows[rows["tokens"] == EXTENDED]
    last = rows[rows["factor"] == rows["factor"].max()].sort_values("loss")
    return _table(("model", *LENGTHS), [[model, *_losses(rows[rows["model"] == model])] for model in last["model"]])
