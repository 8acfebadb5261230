"""A published table beside the runs of a study that repeats it, and whether the two agree."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from extrapolate.evaluation.protocols.base import is_papers
from extrapolate.reports.order_agreement import LEAST, LEAST_TIME, Pair, Value, pairs_of, summary
from extrapolate.reports.page import Block, Details, Heading, Table, Text
from extrapolate.reports.published import CELLS, FILE
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, sections
from extrapolate.results import verdicts
from extrapolate.results.columns import REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.statistics import comparison
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.comparison import Comparison
from extrapolate.statistics.seeds import in_words as seeds_in_words
from extrapolate.statistics.seeds import seeds_of

_TABLE = Column("table", TEXT, meaning="The table's name in the study's file.")
PUBLISHED_CELLS = Described(
    "published_cells", "`published_cells.parquet` of a study that names a published table",
    "number of the table and cell that repeats it", CELLS.groups,
)  # fmt: skip
PUBLISHED = Described(
    "published", "`published.parquet` of a report on a study that names a published table", "number of the table",
    plain(
        _TABLE,
        Column("row", TEXT, meaning="The row's name in the table."),
        Column("column", TEXT, meaning="The column's name in the table."),
        Column("quantity", TEXT, meaning="`loss` (nats per token), `perplexity` or `time` (a ratio)."),
        Column("factor", REAL, "", False, "The evaluation length divided by the training length.", "it is a time"),
        Column("published", REAL, meaning="The published number."),
        Column("model", TEXT, "", False, "The name of the study's model.", "there is none"),
        Column("ours", REAL, "", False, "The study's number, the mean over seeds.", "it was not measured"),
    ),
)  # fmt: skip
RULE = """\
The paper gives no intervals: a pair counts as ordered there if its numbers differ by {:g} or more, in the units of
the table. Ours are ordered if the difference in loss is at least {:g} nats and its 95 % interval excludes zero,
equivalent if the whole interval is closer to zero than that, and otherwise undecided. Each interval is taken by itself:
among pairs without a difference, about one in 20 is ordered by chance. `compare` has the differences."""
RULE_OF_TIMES = " Times are ordered if their ratios differ by {:g} or more."
ONE_SEED = " If a model has one seed, an order is that of this run: another seed may give another."
SEVERAL = "Several of our models fit one row, so none of them stands beside it: {}."
NO_TIMES = """\
We have no times to compare. A time counts if the cell ran alone, and the first row of its group has a time on the same
machine. A sweep with --jobs 1 measures them."""


@sections.register("published")
class Published(Section):
    """The numbers of a published table beside ours, and which orders agree."""

    chapter = "Published tables"
    place = 25
    files = ("published.parquet",)
    tables = (PUBLISHED_CELLS, PUBLISHED)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["tables"] if data.rows and len(data.of_studies(FILE, CELLS)) else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        rows = _of_papers_protocol(pd.concat(data.rows.values()))
        documents = _of_papers_protocol(data.documents)
        blocks: list[Block] = []
        numbers = []
        for (_, name), cells in data.of_studies(FILE, CELLS).groupby(["study", "table"], sort=False):
            values = _values(cells, rows)
            pairs = pairs_of(values, partial(_compared, documents))
            repeating = cells[["run", "extension", "text", "row"]].dropna().drop_duplicates()
            used = rows.merge(repeating, on=["run", "extension"])
            blocks += _blocks(cells.iloc[0], values, pairs, used)
            numbers += [vars(value) | {"table": str(name)} for value in values]
        return Part(blocks, {"published.parquet": parquet(_frame(PUBLISHED, numbers))})


def _of_papers_protocol(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["protocol"].isin(list(filter(is_papers, set(rows["protocol"]))))]


def _values(cells: pd.DataFrame, rows: pd.DataFrame) -> list[Value]:
    """Every number of one table, with ours: the mean over seeds. Times are relative to the first row of their group."""
    found = []
    first: dict[str, tuple[float, set[str]]] = {}
    for _, mine in cells.groupby(["row", "column"], sort=False):
        number = mine.iloc[0]
        ours = rows[rows["run"].isin(mine["run"].dropna()) & (rows["extension"] == number["extension"])]
        model, value = None, math.nan
        if ours["model"].nunique() == 1:  # if there are several, it is not clear which one repeats the row
            model = str(ours["model"].iloc[0])
        if number["quantity"] == "time":
            seconds = strict_mean(ours.drop_duplicates("run")["training_seconds"]) if model else math.nan
            machines = set(ours["training_machine"])
            base, there = first.setdefault(number["group"], (seconds, machines))
            value = seconds / base if machines == there else math.nan
        elif model is not None:
            value = strict_mean(ours[ours["factor"] == number["factor"]]["loss"])
            with np.errstate(over="ignore"):  # the loss can be huge
                value = float(np.exp(value)) if number["quantity"] == "perplexity" else value
        found.append(
            Value(
                number["row"], number["column"], number["group"], number["quantity"],
                None if pd.isna(number["factor"]) else float(number["factor"]), float(number["value"]),
                model, None if math.isnan(value) else value,
            )
        )  # fmt: skip
    return found


def _compared(
    documents: pd.DataFrame, wanted: Sequence[tuple[Value, Value]]
) -> Mapping[tuple[Value, Value], Comparison]:
    """The losses of the first of each pair minus those of the second."""
    found: dict[tuple[Value, Value], Comparison] = {}
    for pair in wanted:
        sides = [
            documents[(documents["model"] == value.model) & (documents["factor"] == value.factor)] for value in pair
        ]
        # Both sides get new names and one factor, since they can be one model at two lengths.
        both = pd.concat([mine.assign(model=str(side), factor=0.0) for side, mine in enumerate(sides)])
        for one in comparison.comparisons(both, controls=False):
            found[pair] = one
    return found


def _blocks(about: pd.Series, values: Sequence[Value], pairs: Sequence[Pair], used: pd.DataFrame) -> list[Block]:
    title = about["title"]
    compared = [pair.compared for pair in pairs if pair.compared is not None]
    rule = RULE.format(LEAST, verdicts.LEAST) + (ONE_SEED if any(one.one_run for one in compared) else "")
    times = [value.ours for value in values if value.quantity == "time"]
    rule += RULE_OF_TIMES.format(LEAST_TIME) if times else ""
    several = [str(row) for row, mine in used.groupby("row", sort=False) if mine["model"].nunique() > 1]
    return [
        Heading(2, f"{title} ({about['source']})"),
        Text(summary(pairs), strong=True),
        Text(f"Theirs: {about['theirs']}. Ours: {_ours(used)}. {about['note']}"),
        Table(_side_by_side(values), f"{title}, the paper's numbers and ours"),
        *([Text(SEVERAL.format(", ".join(several)), strong=True)] if several else []),
        *([Text(NO_TIMES)] if times and not any(time is not None for time in times) else []),
        *([Details([Text(rule, code=True)])] if pairs else []),
    ]


def _ours(used: pd.DataFrame) -> str:
    """What was trained for the study, in words."""
    if used.empty:
        return "none of its rows"

    def between(column: str) -> str:
        ends = dict.fromkeys(_millions(end) for end in (used[column].min(), used[column].max()))
        return f"{' to '.join(ends)} million"

    texts = ", ".join(dict.fromkeys(used["text"]))
    return (
        f"{between('parameters')} parameters, {between('tokens')} tokens (text: {texts}), training length "
        f"{', '.join(map(str, sorted(set(used['seq_len']))))}, {seeds_in_words(seeds_of(used))}"
    )


def _millions(count: float) -> str:
    """`10,000.0`, `1.1`, `0.0082`."""
    return f"{count / 1e6:,.1f}" if count >= 1e6 else f"{count / 1e6:.2g}"


def _side_by_side(values: Sequence[Value]) -> pd.DataFrame:
    """The table in the paper's shape, with a line of the paper's numbers and a line of ours for each row."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for value in values:
        ours = "n/a" if value.ours is None else f"{value.ours:.3f}"
        for whose, name, text in (("paper", value.row, str(value.published)), ("ours", "", ours)):
            lines.setdefault((value.row, whose), {"Row": name, "": whose})[value.column] = text
    return pd.DataFrame(lines.values())


def _frame(described: Described, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Rows as a frame with the columns and types of a table, even if a column has no value."""
    types = {column.name: float if column.type == REAL else object for column in described.columns}
    return pd.DataFrame(rows, columns=described.names).astype(types)
