"""How models use position, as `extrapolate inspect` measured it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from extrapolate import results
from extrapolate.names import INSPECTIONS_TABLE
from extrapolate.reports import inspection, styles
from extrapolate.reports.chart import Axis, Chart, Heat, Panel, Series
from extrapolate.reports.page import Block, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, Writer, picture, sections
from extrapolate.reports.styles import COLOURS
from extrapolate.reports.svg import Plot

CURVES = {
    ("attention", "mass"): ("attention in a range", "where the range begins (tokens back)"),
    ("truncation", "tv"): ("change of predictions (TV)", "context left (tokens)"),
    ("removal", "rise"): ("rise of the loss (nats)", "distance of what is lost (tokens)"),
    ("receptive-field", "cumulative"): ("share of the gradient", "last tokens"),
}
NORMS = {"query_norm": "queries", "key_norm": "keys"}

WHAT = """\
All numbers are for the last L/2 inputs of some windows of held-out text, the same inputs at every length. Layers and
heads count from 0. docs/inspection.md explains how each quantity is measured, and what you can conclude from it."""

SIZES = """\
Root mean squares of the activations in each model, means over layers. Those that do not depend on position should start
at the same size in every model; their size after training is a result."""


@sections.register("inspection")
class Inspection(Section):
    """What each inspected model attends to, how far back it reads, and which frequencies it uses."""

    chapter = "How the models use position"
    place = 35
    files = ("inspections.parquet", "inspection-*")

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["inspected runs"] if data.rows_of(INSPECTIONS_TABLE) else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        found = data.rows_of(INSPECTIONS_TABLE)
        blocks: list[Block] = [Text(WHAT)]
        files: dict[str, Writer] = {INSPECTIONS_TABLE: partial(results.write, rows=found, table=results.INSPECTIONS)}

        def add(model: str, chart: Chart) -> None:
            chart = replace(chart, caption=f"{model}. {chart.caption}")
            blocks.append(Plot(chart))
            files.update(picture(chart))

        for number, (title, group) in enumerate(inspection.by_model(pd.DataFrame(found)), start=1):
            blocks.append(Heading(2, f"How {title} uses position"))
            if any(len(inspection.values(group, *curve)) for curve in CURVES):
                add(title, curves(group, f"inspection-{number}.png"))
            if len(inspection.values(group, "frequencies", "query_norm")):
                add(title, norms(group, f"inspection-frequencies-{number}.png"))
            for what, table in inspection.tables_of(group):
                blocks += [Text(f"{what[0].upper()}{what[1:]}:"), Table(table)]
            blocks += map(Text, inspection.reasons(group))
        if len(sizes := inspection.sizes_of_models(pd.DataFrame(found))) > 1:
            blocks += [Heading(2, "How large the numbers are"), Text(SIZES), Table(sizes)]
        return Part(blocks, files)


def curves(group: pd.DataFrame, file: str) -> Chart:
    """A panel for each quantity that depends on a distance, with a line for each factor: means over layers and heads.

    group: one model's rows, as in `inspection.by_model`.
    """
    shown = {curve: found for curve in CURVES if len(found := inspection.values(group, *curve).dropna(subset="at"))}
    factors = sorted({float(factor) for found in shown.values() for factor in found["factor"]})
    panels = []
    for curve, found in shown.items():
        lines = []
        for factor, some in found.groupby("factor"):
            means = some.groupby("at")["value"].mean()
            at = factors.index(float(str(factor)))
            style = {"color": COLOURS[at % len(COLOURS)], "linestyle": "-", "marker": "o"}
            lines.append(Series(f"{factor:g}x", means.index, means, style))
        title, below = CURVES[curve]
        places = {at: f"{at:g}" for at in sorted(set(found["at"]))}  # 0, then powers of 2
        limits = styles.limits(pd.concat([pd.Series(list(line.y)) for line in lines]))
        panels.append(Panel(lines, Axis(below, "even", places), Axis(range=limits), title))
    said = "Means over layers and heads, with a line for each factor of L."
    return Chart("attention, predictions, loss and gradient by distance", file, panels, caption=said)


def norms(group: pd.DataFrame, file: str) -> Chart:
    """The norms of queries and keys by layer and frequency, means over heads, at the least factor."""
    found = inspection.measured(group, "frequencies")
    found = inspection.nearest(found[found["quantity"].isin(NORMS)])
    wide = found.pivot_table(index=["quantity", "layer"], columns="at", values="value", aggfunc="mean")
    wide = wide.reindex(list(NORMS), level="quantity")
    names = [f"{NORMS[quantity]}, layer {layer}" for quantity, layer in wide.index]
    columns, values_RC = [f"{at:.0f}" for at in wide.columns], wide.to_numpy(float)
    title, most = "Mean norms of queries and keys", float(np.nanmax(values_RC))
    map_ = Heat(title, names, columns, values_RC, most, digits=2, below="frequency (0: the fastest)")
    said = "Norms of queries and keys by layer and frequency, means over heads."
    return Chart("mean norms of queries and keys by layer and frequency", file, map_, caption=said)
