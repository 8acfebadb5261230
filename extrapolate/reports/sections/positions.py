"""Where in the context the loss rises: the loss by position in the window, and failure lengths."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from extrapolate.evaluation.protocols.base import known_by
from extrapolate.folders import join_names
from extrapolate.names import AS_TRAINED
from extrapolate.reports import styles
from extrapolate.reports.chart import Axis, Chart, Panel, Series
from extrapolate.reports.page import Block, Details, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, Writer, parquet, picture, sections, suffix, with_conditions
from extrapolate.reports.styles import MOST_BANDS, Style
from extrapolate.reports.svg import Plot
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.results.verdicts import LEAST
from extrapolate.statistics.documents import has_positions
from extrapolate.statistics.positions import OF_ALL, Failure, by_position, failure_table, failures, furthest, with_seeds

_CURVE = (
    Column("model", TEXT, meaning="The model's name in tables."),
    Column(
        "windows",
        TEXT,
        meaning="The windows that the row is about: all lengths (`up to 16x`) if a token's loss does not depend on the "
        "length of its window, else one length (`16x`).",
    ),
    Column("factor", REAL, meaning="The evaluation length divided by the training length L."),
    Column("length", INT, "tokens", meaning="The evaluation length."),
    Column("clusters", INT, meaning="The number of clusters behind the intervals."),
    Column("cluster", TEXT, meaning="What a cluster is: `documents`, or `stretches` if there are few documents."),
    Column("seeds", INT, meaning="The number of runs averaged."),
)
MOST_PANELS = 6
# Nats times tokens: how much less the second half of L costs than the first if a model reads its last token or two.
LITTLE = 3.2
_TOO_FEW = "there are too few clusters"
LOSS_BY_POSITION = Described(
    "loss_by_position", "`loss_by_position.parquet` of a report, protocol `windows`",
    "model, length and bucket of positions",
    plain(
        Column("position", INT, "tokens", meaning="The start of a bucket of inputs in the window."),
        Column("bucket", INT, "tokens", meaning="The number of inputs in a bucket, L/2."),
        Column("loss", REAL, "nats per target", False, "The bucket's loss.", "nothing was measured at this length"),
        Column("control_loss", REAL, "nats per target", meaning="The control's loss on the same targets."),
        Column("difference", REAL, "nats per target", False, "The loss minus the control's.", "`loss` is empty"),
        Column(
            "low", REAL, "nats per target", False,
            "The lower end of a 95 % band around the difference, simultaneous over all rows of all models.",
            "the bucket begins before L, the difference is infinite, a shorter length of the same `windows` has the "
            f"bucket, or {_TOO_FEW}",
        ),
        Column("high", REAL, "nats per target", False, "The upper end of the same band.", "`low` is empty"),
        Column("n_targets", INT, "targets", meaning="How many tokens were scored."),
        *_CURVE,
    ),
)  # fmt: skip
FAILURE_LENGTHS = Described(
    "failure_lengths", "`failure_lengths.parquet` of a report, protocol `windows`",
    "model, or model and length beyond L (see `windows`)",
    plain(
        *_CURVE,
        Column(
            "fails_from", INT, "tokens", False,
            "The failure length: the start of the first bucket whose loss is significantly (at 95 %, over all buckets "
            "of all models) above the control's, by 0.01 or more.",
            f"there is no such bucket, or {_TOO_FEW}",
        ),
        Column(
            "holds_to", INT, "tokens", False,
            "The length up to which, from L on, every bucket is significantly less than 0.01 above the control.",
            f"the first bucket beyond L is not, or {_TOO_FEW}",
        ),
        Column(
            "by_seed", TEXT, "tokens", meaning="The failure length of each seed, in order; an empty string if there is "
            "one seed.",
        ),
    ),
    base=LOSS_BY_POSITION,
)  # fmt: skip


@sections.register("positions")
class Positions(Section):
    """The loss by position in the window, and the position from which each model is worse than its control."""

    chapter = "Loss by evaluation length"
    place = 20
    files = ("loss_by_position.*", "failure_lengths.*")
    tables = (LOSS_BY_POSITION, FAILURE_LENGTHS)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return [
            protocol
            for protocol in data.rows
            if known_by(protocol).positions and has_positions(data.of_documents(protocol), data.seq_len(protocol))
        ]

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        documents = data.of_documents(subject)
        curves = by_position(documents)
        found = with_seeds(failures(curves), documents)
        named = styles.named(data.styles, data.rows[subject])
        seq_len, end = data.seq_len(subject), suffix(subject)
        drawn = Curves(curves, found, named, data.styles, seq_len)
        losses = with_conditions(data.rows[subject], drawn.losses(f"loss_by_position{end}.png"))
        blocks: list[Block] = [Heading(2, "Where in the context"), Plot(losses)]
        files: dict[str, Writer] = {
            f"loss_by_position{end}.parquet": parquet(curves[LOSS_BY_POSITION.names]),
            **picture(losses),
        }
        if found:  # else nothing beyond L was evaluated
            beyond = with_conditions(data.rows[subject], drawn.differences(f"failure_lengths{end}.png"))
            table = pd.DataFrame([vars(one) for one in found])[FAILURE_LENGTHS.names]
            table = table.astype({"fails_from": "Int64", "holds_to": "Int64"})
            blocks += [
                Table(
                    failure_table(found, data.models(subject)),
                    "failure length, tokens: where the loss is first above the control's",
                ),
                Details([Text(_explained(found, documents))]),
                Plot(beyond),
            ]
            files |= {f"failure_lengths{end}.parquet": parquet(table), **picture(beyond)}
        return Part(blocks, files)


def hardly_learned(data: ReportData) -> str:
    """The sentence that verdicts follow if models make little use of the context within L; empty if all do.

    Their losses at 1x fall by less than LITTLE / L nats from the first half of the window to the second.
    """
    subjects = Positions.subjects(data)
    if not subjects:
        return ""
    rows, seq_len = data.of_documents(subjects[0]), data.seq_len(subjects[0])
    rows = rows[(rows["factor"] == 1.0) & (rows["extension"] == AS_TRAINED) & rows["loss"].notna()]
    sums = rows["loss"].astype(float) * rows["n_targets"]
    halves = rows.assign(loss=sums, second=rows["position"] >= seq_len / 2).groupby(["model", "second"], observed=True)
    mean = (halves["loss"].sum() / halves["n_targets"].sum()).unstack().reindex(columns=[False, True])
    fall = mean[False] - mean[True]
    little = fall[fall < LITTLE / seq_len]
    if little.empty:
        return ""
    models, most = (
        join_names([str(model) for model in little.sort_values().index]),
        f"{max(little.max(), 0.0):.3f} nats",
    )
    where = "from the first to the second half of the training length,"
    if len(little) == 1:
        fell = f"the loss falls by only {most}, so it makes little use of context"
        return f"Train {models} longer before you read its verdicts: {where} {fell}."
    fell = f"losses fall by only {most} or less, so they make little use of context"
    return f"Train {models} longer before you read their verdicts: {where} {fell}."


@dataclass(frozen=True)
class Curves:
    """The charts of the section. rows: as `by_position` returns them. failures: the failure lengths found in them.

    named: the models with names and colours. style: how pictures draw each model. seq_len: tokens.
    """

    rows: pd.DataFrame
    failures: Sequence[Failure]
    named: Sequence[str]
    style: Mapping[str, Style]
    seq_len: int

    def losses(self, file: str) -> Chart:
        """The loss of each model, and of the lowest control, against the position: a panel for each long factor."""
        factors = sorted(set(self.rows["factor"]))[-MOST_PANELS:]
        shown = self.rows[self.rows["factor"].isin(factors)]
        best = shown.groupby(["factor", "position"])["control_loss"].min()
        y = Axis("loss (nats per token)", range=styles.limits(shown["loss"], best))
        x = Axis(f"position in the window / L (L = {self.seq_len})")
        panels = []
        for factor in factors:
            here, control = shown[shown["factor"] == factor], best.loc[factor]
            reference = Series("best control", self._middle(control.index), control, kind="reference")
            panels.append(Panel([*self._lines(here, "loss"), reference], x, y, f"windows of {factor:g}x"))
        said = "Loss by position in windows of each length. Dashed: the lowest control, which sees at most L tokens."
        return Chart("loss by position in the window", file, panels, caption=said)

    def differences(self, file: str) -> Chart:
        """The difference to the control beyond L, with its band and the failure length in the longest windows."""
        longest = furthest(self.rows)
        bands = longest[longest["model"].isin(self.named)]
        bands = bands if bands["model"].nunique() <= MOST_BANDS else bands[:0]
        lines = self._lines(longest, "difference", banded=set(bands["model"]))
        limits = styles.limits(longest["difference"], around=bands[["low", "high"]])
        x = Axis(f"position in windows of up to {self.rows['factor'].max():g}x / L (L = {self.seq_len} tokens)")
        y = Axis("loss minus the control's (nats per token)", range=limits)
        title = f"Beyond L{', with 95 % bands' if len(bands) else ''}; crosses: failure lengths"
        panel = Panel(lines, x, y, title, zero=True)
        said = "Loss minus the control's beyond L. A cross is where a model is first sure to be worse."
        return Chart("difference to the control by position in the window", file, [panel], caption=said)

    def _lines(self, rows: pd.DataFrame, column: str, banded: Collection[str] = ()) -> list[Series]:
        """A line for each model, and a cross at the failure length of each named one."""
        fails = {one.model: one.fails_from for one in self.failures if one.factor == rows["factor"].max()}
        lines = []
        for model in styles.drawn(self.style, rows):
            group, own = rows[rows["model"] == model], self.style[model] if model in self.named else None
            low, high = (group["low"], group["high"]) if model in banded else (None, None)
            lines.append(Series(model, self._middle(group["position"]), group[column], own, low=low, high=high))
            if own is not None and (at := fails.get(model)) is not None:
                there = group[group["position"] == at]
                said = [f", fails from {at} tokens on"] * len(there)
                x = self._middle(there["position"])
                lines.append(Series(model, x, there[column], own, "crosses", texts=said))
        return lines

    def _middle(self, position: Any) -> Any:
        """The middle of the buckets that start at these positions, in training lengths."""
        return (position + self.rows["bucket"].iloc[0] / 2) / self.seq_len


def _explained(found: Sequence[Failure], rows: pd.DataFrame) -> str:
    resampled = ", ".join(sorted({f"{one.clusters} {one.cluster}" for one in found}))
    said = (
        "The failure length is the start of the first bucket of positions beyond L that fails: its loss is "
        f"significantly above the control's on the same targets, by {LEAST:g} nats or more. A model holds as long as "
        f"its loss is significantly less than {LEAST:g} nats above the control's. Between the two, the data do not "
        "decide. Significance is at 95 % for all buckets of all models at once: of 100 reports in which no model is "
        f"above its control, at most 5 name a failure. Lengths are in tokens, in buckets of L/2. The intervals "
        f"are over {resampled}, with seeds averaged, so this is about these runs: other seeds may fail elsewhere."
    )
    if any(one.by_seed for one in found):
        said += " Those by seed are at 95 % for each seed by itself."
    if any(one.windows.startswith(OF_ALL) for one in found):
        said += (
            f' "{OF_ALL}": a token\'s loss does not depend on the length of its window, so each bucket is taken from '
            "the shortest windows that have it, of which there are most."
        )
    if any(not one.windows.startswith(OF_ALL) for one in found):
        said += " A model has a failure length for each evaluation length if what is applied depends on the length."
    if rows.loc[rows["factor"] > 1, "plan_hash"].isna().any():
        said += " This is also so if the model itself depends on the length."
    return said
