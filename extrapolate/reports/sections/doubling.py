"""Whether the answer still changes with more training: what the last doubling of the tokens changed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from extrapolate.evaluation.protocols.base import isolates
from extrapolate.reports.fdr import Family, at_false_discovery_rate, family
from extrapolate.reports.page import Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, sections, suffix
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.statistics.comparison import CONTROL, Comparison, comparisons, resampled
from extrapolate.statistics.doublings import changes, doubled

SHARE = 1 / 3  # of a difference: a greater change says that it is not near its limit
MATTERS = 0.01  # nats: a smaller change of a difference is no news
DOUBLINGS = Described(
    "doublings", "`doublings.fixed-target.parquet` of a report, if models of half the budget were evaluated",
    "model, compared with the first one and with its control",
    plain(
        Column("model", TEXT, meaning="The model's name."),
        Column("other", TEXT, meaning=f"The model that it is compared with, or `{CONTROL}`."),
        Column("factor", REAL, meaning="The evaluation length over L."),
        Column("half_tokens", INT, "tokens", meaning="How many tokens the model of half the budget was trained on."),
        Column("tokens", INT, "tokens", meaning="How many tokens the model was trained on."),
        Column("difference", REAL, "nats per target", meaning="The model's loss minus the other's, at the end."),
        Column("change", REAL, "nats per target", meaning="That difference minus the one at half the budget."),
        Column("low", REAL, "nats per target", False, "The lower end of its interval.", "there are too few documents"),
        Column("high", REAL, "nats per target", False, "The upper end of its interval.", "there are too few documents"),
        Column("moving", pa.bool_(), meaning="Whether the change is sure, and more than a third of the difference."),
    ),
)  # fmt: skip
EXPLAINED = """\
The same models at half of their training tokens, with a learning rate that had fallen to its end too, on the same
targets. **Rise** is a model's loss at {longest:g}x minus its control's; a change above 0 means that the model got worse
beyond L relative to what it does within. A difference still changes if its change over the last doubling is sure, at
least {matters:g} nats, and more than a third of the difference itself. Most models of half the budget are a little
behind models that were trained for it alone, so changes are overstated: on books, with six encodings, by up to 0.05
nats at 1x, and at 16x by 0.10 to 0.14 for ExPE. {resampled}"""


@dataclass(frozen=True)
class Doubling:
    """A comparison, and how much its difference changed since half the budget."""

    now: Comparison
    change: Comparison
    half_tokens: int
    tokens: int

    def means(self) -> tuple[float, float] | None:
        """The difference at half the budget and at the end, nats; None if either is unknown or infinite."""
        now, change = self.now.difference, self.change.difference
        if now is None or change is None or not math.isfinite(now.mean) or not math.isfinite(change.mean):
            return None
        return now.mean - change.mean, now.mean

    @property
    def moving(self) -> float:
        """How much the difference changed, nats, if it is still far from what more training would give; otherwise 0."""
        if (means := self.means()) is None or not self.change.sure():
            return 0.0
        change = abs(means[1] - means[0])
        return change if change >= max(MATTERS, SHARE * abs(means[1])) else 0.0


@sections.register("doubling")
class LastDoubling(Section):
    """What the last doubling of the training tokens changed at the longest length."""

    chapter = "Along the training"
    place = 27
    files = ("doublings.*",)
    tables = (DOUBLINGS,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return [name for name, rows in data.along.items() if isolates(name) and len(doubled(rows))]

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        documents, order = data.of_documents(subject), data.models(subject)
        compared = family(data.rows[subject], documents, order, isolates(subject))
        found = doublings(*data.all_checkpoints(subject), compared)
        told = EXPLAINED.format(
            longest=compared.longest, matters=MATTERS, resampled=resampled([one.change for one in found])
        )
        blocks = [Heading(2, f"The last doubling of the tokens, protocol {subject}"), Table(shown(found)), Text(told)]
        return Part(blocks, {f"doublings{suffix(subject)}.parquet": parquet(pd.DataFrame([row(one) for one in found]))})


def doublings(rows: pd.DataFrame, documents: pd.DataFrame, compared: Family) -> list[Doubling]:
    """The comparisons with the first model and with the control of which both sides have a model of half the budget.

    rows, documents: of losses and by document, of all checkpoints and one protocol.
    """
    steps = doubled(rows)
    here = documents[(documents["factor"] == compared.longest) & documents["model"].isin(compared.trained)]
    changed = changes(steps, here)
    if changed.empty:
        return []
    made = [
        *comparisons(changed, controls=False, reference=compared.reference),
        *(one for one in comparisons(changed, pairs=False) if one.other == CONTROL),
    ]
    now = {(one.model, one.other): one for one in (*compared.orders, *compared.controls)}
    tokens = (int(steps["half_tokens"].max()), int(steps["tokens"].max()))
    return [
        Doubling(now[one.model, one.other], one, *tokens)
        for one in at_false_discovery_rate(made, Comparison.sure)
        if (one.model, one.other) in now
    ]


def still_moving(found: Sequence[Doubling]) -> str:
    """The sentence that an answer begins with if more training would change it; empty if not."""
    moving = sorted((one for one in found if one.moving), key=lambda one: -one.moving)
    if not moving or (means := moving[0].means()) is None:
        return ""
    most, others = moving[0], len(moving) - 1
    than = "its control's" if most.now.other == CONTROL else f"{most.now.other}'s"
    more = f"; {others} of the {len(found) - 1} other differences still change{'s' * (others == 1)}, too"
    return (
        f"This answer still changes with more training: from {most.half_tokens:,} to {most.tokens:,} tokens, "
        f"{most.now.model}'s loss at {most.now.factor:g}x minus {than} went from {means[0]:+.2f} to {means[1]:+.2f} "
        f"nats{more if others else ''}."
    )


def shown(found: Sequence[Doubling]) -> pd.DataFrame:
    """The table of the page: a row for each model."""
    rows: dict[str, dict[str, str]] = {}
    for one in found:
        name = "Rise" if one.now.other == CONTROL else f"Minus {one.now.other}"
        group = rows.setdefault(one.now.model, {"Model": one.now.model})
        group[name] = "n/a" if one.now.difference is None else f"{one.now.difference.mean:+.3f}"
        change = one.change.difference
        group[f"{name}, change"] = "n/a" if change is None else change.text() + (" still changes" if one.moving else "")
    return pd.DataFrame(list(rows.values())).fillna("")


def row(one: Doubling) -> dict[str, object]:
    """A row of DOUBLINGS."""
    now, change = one.now.difference, one.change.difference
    return {
        "model": one.now.model, "other": one.now.other, "factor": one.now.factor, "half_tokens": one.half_tokens,
        "tokens": one.tokens, "difference": now and now.mean, "change": change and change.mean,
        "low": change and change.low, "high": change and change.high, "moving": bool(one.moving),
    }  # fmt: skip
