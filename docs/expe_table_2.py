"""The tables of docs/results/expe-table-2.md, from the rows beside it."""

from pathlib import Path

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.reports import published
from extrapolate.reports.page import Table
from extrapolate.statistics.comparison import comparable_rows, comparisons

FOLDER = Path(__file__).parent / "results" / "expe-table-2-books"
PAPER = {row.name: row for row in published.published()["expe-table-2"].rows}
FACTORS = (1, 2, 4)  # the paper's


def _last() -> pd.DataFrame:
    """The rows after the most tokens that all models have."""
    rows = pd.read_parquet(FOLDER / "evals.parquet")
    return rows[(rows["extension"] == AS_TRAINED) & (rows["tokens"] == rows["tokens"].max())]


def losses() -> str:
    """The paper's losses, and ours."""
    ours = _last().pivot_table(index="encoding", columns="factor", values="loss")
    lines = []
    for name, row in PAPER.items():
        lines += [[name, "paper", *map(str, row.values), "", ""]]
        lines += [["", "ours", *ours.loc[row.encoding].map("{:.3f}".format)]]
    return Table(pd.DataFrame(lines, columns=["model", "", "loss at 1x", "2x", "4x", "8x", "16x"])).markdown()


def agreement() -> str:
    """The paper's differences at each of its lengths, and ours with their intervals."""
    documents, _ = comparable_rows(_last(), pd.read_parquet(FOLDER / "eval_documents.parquet"), extensions=False)
    lines: dict[str, dict[str, str]] = {}
    for one in comparisons(documents[documents["factor"].isin(FACTORS)], controls=False):
        here, at = lines.setdefault(f"{one.model} minus {one.other}", {}), FACTORS.index(int(one.factor))
        here[f"{one.factor:g}x, paper"] = f"{PAPER[one.model].values[at] - PAPER[one.other].values[at]:+.2f}"
        here[f"{one.factor:g}x, ours"] = "" if one.difference is None else one.difference.text()
    return Table(pd.DataFrame(lines).T.rename_axis("loss").reset_index()).markdown()
