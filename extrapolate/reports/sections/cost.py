"""What each model costs in training and in evaluation, and the loss it has in return."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from extrapolate.reports import styles
from extrapolate.reports.chart import Axis, Chart, Panel, Series
from extrapolate.reports.page import Block, Details, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, picture, sections, suffix, with_conditions
from extrapolate.reports.sections.losses import MODEL, SEEDS
from extrapolate.reports.styles import Style
from extrapolate.reports.svg import Plot
from extrapolate.results.columns import REAL, Column
from extrapolate.results.described import Described, plain
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.seeds import counts

TRAINING, SPEED = "Training seconds", "Training tokens/s"
MEASURED = {"tokens_per_s": "Evaluation inputs/s", "peak_mib": "Evaluation MiB"}  # a column for every length
_BESIDE = "it is not known, other work ran at the same time, or the machine is not the one of most rows"
COST = Described(
    "cost", "`cost.parquet` of a report", "model",
    plain(
        MODEL,
        Column(TRAINING, REAL, "seconds", False, "The training time; the mean over seeds.", _BESIDE),
        Column(SPEED, REAL, "tokens per second", False, "The training tokens divided by these seconds.", _BESIDE),
        Column(
            f"{MEASURED['tokens_per_s']} (ev=K)", REAL, "inputs per second", False, "The speed of the evaluation at K "
            "times the training length; the mean over seeds.", f"there is no loss, or {_BESIDE}",
        ),
        Column(
            f"{MEASURED['peak_mib']} (ev=K)", REAL, "MiB", False, "Its peak memory; the mean over seeds.",
            "there is no loss, or the system does not report it",
        ),
        Column("Loss (ev=K)", REAL, "nats per target", False, "The mean loss over seeds, at the shortest and the "
               "longest length.", "nothing was measured at this length"),
        SEEDS,
    ),
)  # fmt: skip
EXPLAINED = """\
Times are those of one machine, the one on which most models were trained. A model is on the front if no other is both
cheaper and better: models off the front cost more for nothing. An extension costs time only in the evaluation. Times
are n/a if other runs of a study or other programs ran at the same time, and for imported models and other machines."""
DRAWN = "Mean loss against training time at the shortest and the longest length. Dashed: the front."
FRONT = "On the front of training time and loss at {:g}x: {}."


@sections.register("cost")
class Cost(Section):
    """Training time, speed and memory of the evaluation, against the loss at the shortest and the longest length."""

    chapter = "Cost"
    place = 35
    files = ("cost.*",)
    tables = (COST,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        first = list(data.rows)[:1]  # costs are almost the same for all protocols
        columns = ["training_seconds", *MEASURED]
        return [name for name in first if data.rows[name][columns].notna().any(axis=None)]

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        rows, stem = data.rows[subject], f"cost{suffix(subject)}"
        table = costs(rows, data.models(subject))
        ends = [rows["factor"].min(), rows["factor"].max()]
        losses = list(dict.fromkeys(f"Loss (ev={factor:g})" for factor in ends))
        blocks: list[Block] = [Heading(2, f"Cost and loss, protocol {subject}")]
        files = {f"{stem}.parquet": parquet(table)}
        if table[TRAINING].nunique() > 1:
            drawn = with_conditions(rows, chart(table, losses, data.styles, f"{stem}.png"))
            blocks.append(Plot(drawn))
            files |= picture(drawn)
            for column in losses:
                found = table[MODEL.name][front(table[TRAINING], table[column])]
                blocks.append(Text(FRONT.format(float(column[len("Loss (ev=") : -1]), ", ".join(found))))
        blocks += [Table(_shown(table, [TRAINING, SPEED, *losses])), Details([Text(EXPLAINED)])]
        for name in MEASURED.values():
            columns = [str(column) for column in table if str(column).startswith(name)]
            if table[columns].notna().any(axis=None):
                blocks += [Text(f"{name}, by length:"), Table(_shown(table, columns))]
        return Part(blocks, files)


def costs(rows: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """The columns of COST, a row for each model, in this order. rows: one protocol's, on one set of targets."""
    factors = sorted(set(rows["factor"]))
    timed = rows.assign(
        training_seconds=rows["training_seconds"].where(rows["training_machine"] == _most(rows["training_machine"])),
        tokens_per_s=rows["tokens_per_s"].where(rows["machine"] == _most(rows["machine"])),
    ).astype(dict.fromkeys(("training_seconds", "tokens", *MEASURED), float))
    runs = timed.drop_duplicates(["model", "run"]).groupby("model")[["training_seconds", "tokens"]]
    trained = runs.agg(strict_mean).loc[list(order)]
    speed = trained["tokens"] / trained["training_seconds"]
    placed = timed.groupby(["model", "factor"])[[*MEASURED, "loss"]].agg(strict_mean).unstack().loc[list(order)]
    table = pd.DataFrame({MODEL.name: order, TRAINING: trained["training_seconds"].array, SPEED: speed.array})
    for column, name in MEASURED.items():
        for factor in factors:
            table[f"{name} (ev={factor:g})"] = placed[column, factor].array
    for factor in dict.fromkeys([factors[0], factors[-1]]):
        table[f"Loss (ev={factor:g})"] = placed["loss", factor].array
    return table.assign(**{SEEDS.name: counts(rows)[list(order)].array})


def _most(machines: "pd.Series[str]") -> str | None:
    """The machine of most rows; None if none is known."""
    known = machines.dropna()
    return None if known.empty else str(known.mode().iloc[0])


def front(cost: "pd.Series[float]", loss: "pd.Series[float]") -> "pd.Series[bool]":
    """Which are on the front: none is at least as good in both and better in one of the two. No infinite loss is."""
    points = pd.DataFrame({"cost": cost, "loss": loss.replace(math.inf, math.nan)}).dropna()
    beaten = {
        at: ((points <= point).all(axis=1) & (points < point).any(axis=1)).any() for at, point in points.iterrows()
    }
    return pd.Series([not beaten.get(at, True) for at in cost.index], index=cost.index)


def _shown(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Model, some columns and seeds as text: losses to three decimals, other numbers to three digits or whole."""

    def text(value: float, column: str) -> str:
        if value != value:
            return "n/a"
        return f"{value:.3f}" if column.startswith("Loss") else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    texts = {column: [text(float(value), column) for value in table[column]] for column in columns}
    return pd.DataFrame({MODEL.name: table[MODEL.name]} | texts | {SEEDS.name: table[SEEDS.name]})


def chart(table: pd.DataFrame, losses: Sequence[str], style: Mapping[str, Style], file: str) -> Chart:
    """The loss at the shortest and at the longest length against the training time, with the fronts.

    Models on a front are named; if there are few models, all are.
    """
    fronts = [front(table[TRAINING], table[column]) for column in losses]
    on_some = pd.concat(fronts, axis=1).any(axis=1) | (len(table) <= styles.MANY)
    named = set(table[MODEL.name][on_some][: styles.MOST_NAMED])
    panels = []
    for column, best in zip(losses, fronts, strict=True):
        ends = table[best].sort_values(TRAINING)
        points = [Series("front", ends[TRAINING], ends[column], kind="steps")]
        for model, seconds, loss in zip(table[MODEL.name], table[TRAINING], table[column], strict=True):
            points.append(Series(model, [seconds], [loss], style[model] if model in named else None, "points"))
        title = f"loss at {column[len('Loss (ev=') : -1]}x (nats per token)"
        y = Axis(range=styles.limits(table[column]))
        panels.append(Panel(points, Axis("training time (seconds)"), y, title))
    return Chart("loss against training time", file, panels, caption=DRAWN)
