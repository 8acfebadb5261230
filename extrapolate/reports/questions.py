"""The questions of a study, and their answers, which are the first sentences of its report."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import results
from extrapolate.reports.fdr import ERROR
from extrapolate.reports.report_data import ReportData
from extrapolate.results.columns import INT, REAL, TEXT, Group, Table, always
from extrapolate.results.verdicts import EQUIVALENT, ORDERED, UNDECIDED
from extrapolate.statistics.comparison import Comparison, of_pairs
from extrapolate.statistics.intervals import FEWEST_SEEDS

FILE = "questions.parquet"  # a study leaves it in its folder, for its report
QUESTIONS = Table(
    groups=(
        Group(
            "", "",
            (
                always("question", INT, "", "The question's index in the study's file, from 0."),
                always("a", TEXT, "", "One model, as in the file."),
                always("b", TEXT, "", "The other."),
                always("factor", REAL, "", "The evaluation length divided by the training length."),
                always("side", TEXT, "", "Which of the two the row is of."),
                always("run", TEXT, "", "A run of that model."),
                always("extension", TEXT, "", "What is applied at inference."),
            ),
        ),
    ),
    key=("question", "side", "run", "extension"),
)  # fmt: skip


def write_questions(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes a study's questions to its folder, or removes the file if there are none."""
    if found := list(rows):
        results.write(folder / FILE, found, QUESTIONS)
    else:
        (folder / FILE).unlink(missing_ok=True)  # of an earlier version of the study


def answers(data: ReportData, protocol: str) -> list[str]:
    """A sentence or two for each question whose runs are in the report. Raises UserError if a table is damaged.

    The intervals hold all at once with an error rate of ERROR (Bonferroni).
    """
    asked = data.of_studies(FILE, QUESTIONS).dropna(subset="run")
    groups = [group for _, group in asked.groupby(["study", "question"], sort=False)] if len(asked) else []
    return [_answer(data, protocol, group, 1 - ERROR / len(groups)) for group in groups]


def _answer(data: ReportData, protocol: str, asked: pd.DataFrame, confidence: float) -> str:
    first = asked.iloc[0]
    rows = data.rows[protocol].merge(asked[["run", "extension", "side"]], on=["run", "extension"])
    models = {str(side): list(group["model"].unique()) for side, group in rows.groupby("side")}
    a, b = (models.get(side, []) for side in "ab")
    names = [str(one[0]) if len(one) == 1 else str(first[side]) for side, one in (("a", a), ("b", b))]
    at = f"at {first['factor']:g}x"
    sums = [one for one in data.sums if (one.protocol, one.factor) == (protocol, first["factor"])]
    found = list(of_pairs(sums, [(names[0], names[1])], confidence)) if len(a) == len(b) == 1 else []
    if len(found) != 1 or found[0].difference is None:
        without = [name for name, one in zip(names, (a, b), strict=True) if not one]
        why = f"{' and '.join(without)} has none" if len(without) == 1 else "they have none with the same seed"
        return f"Nothing can be said about {names[0]} and {names[1]} {at} from losses under {protocol}: {why}."
    return " ".join(_sentences(found[0], at))


def _sentences(one: Comparison, at: str) -> Iterator[str]:
    assert one.difference is not None
    seeds = max(1, len(one.seeds))
    over = f"over {seeds} {'seed' if seeds == 1 else 'seeds'} and {one.difference.clusters} {one.clusters}"
    found = f"{one.difference.text()} nats {over}"
    if one.word in ORDERED:
        yield f"{one.model} is {one.word} than {one.other} {at}: {found}."
    elif one.word == EQUIVALENT:
        yield f"{one.model} and {one.other} are equivalent {at}: {found}."
    else:
        why = "undecided" if one.word == UNDECIDED else "open, because there are too few documents"
        yield f"Whether {one.model} is better or worse than {one.other} {at} is {why}: {found}."
    if one.one_run:
        yield f"This is about one run: for a statement about the models, train at least {FEWEST_SEEDS} seeds."
    elif advice := one.advice():
        yield f"Deciding a difference of this size would take about {advice}.".replace("about more", "more")
