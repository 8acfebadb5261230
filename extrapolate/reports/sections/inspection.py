"""How models use position: what `inspect` measured."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import results
from extrapolate.names import INSPECTIONS_TABLE
from extrapolate.reports import inspection, inspection_charts, plots
from extrapolate.reports.inspection_charts import CURVES, NORMS
from extrapolate.reports.material import Material
from extrapolate.reports.page import Block, Heading, OnlyMarkdown, Picture, Table, Text
from extrapolate.reports.sections.base import Part, Section, Writer, sections
from extrapolate.reports.styles import COLOURS

WHAT = """\
All numbers are of the last L/2 inputs of some windows of held-out text, the same inputs at every length. Layers and
heads count from 0. The docs say in docs/inspection.md how each quantity is measured, and what may be concluded."""

SIZES = """\
Root mean squares of what passes through each model, means over layers. What is not position should start as large in
every model; what training makes of it is a result."""


@sections.register("inspection")
class Inspection(Section):
    """What each inspected model attends to, how far back it reads, and which frequencies it uses."""

    chapter = "How the models use position"
    place = 35
    files = ("inspections.parquet", "inspection-*.png")

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return ["inspected runs"] if material.rows_of(INSPECTIONS_TABLE) else []

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        found = material.rows_of(INSPECTIONS_TABLE)
        blocks: list[Block] = [Text(WHAT)]
        files: dict[str, Writer] = {INSPECTIONS_TABLE: partial(results.write, rows=found, table=results.INSPECTIONS)}
        for number, (title, mine) in enumerate(inspection.by_model(pd.DataFrame(found)), start=1):
            blocks.append(Heading(2, f"How {title} uses position"))
            if any(len(inspection.values(mine, *curve)) for curve in CURVES):
                file = f"inspection-{number}.png"
                blocks.append(OnlyMarkdown(Picture("attention, predictions, loss and gradient by distance", file)))
                blocks.append(inspection_charts.curves(mine, f"by-distance-{number}", file))
                files[file] = partial(draw_curves, mine)
            if len(inspection.values(mine, "frequencies", "query_norm")):
                file = f"inspection-frequencies-{number}.png"
                blocks.append(inspection_charts.norms(mine, file))
                files[file] = partial(draw_frequencies, mine)
            for what, table in inspection.tables_of(mine):
                blocks += [Text(f"{what[0].upper()}{what[1:]}:"), Table(table)]
            blocks += map(Text, inspection.reasons(mine))
        if len(sizes := inspection.sizes_of_models(pd.DataFrame(found))) > 1:
            blocks += [Heading(2, "How large the numbers are"), Text(SIZES), Table(sizes)]
        return Part(blocks, files)


def draw_curves(mine: pd.DataFrame, path: Path) -> None:
    """Draws what depends on a distance, a line for each factor: means over layers and heads."""
    shown = {curve: found for curve in CURVES if len(found := inspection.values(mine, *curve).dropna(subset="at"))}
    factors = sorted({float(factor) for found in shown.values() for factor in found["factor"]})
    style = {f"{factor:g}x": {"color": COLOURS[at % len(COLOURS)]} for at, factor in enumerate(factors)}
    sheet = plots.Sheet(len(shown), style, list(style), one_scale=False)
    for panel, (curve, found) in zip(sheet.panels, shown.items(), strict=True):
        for factor, some in found.groupby("factor"):
            means = some.groupby("at")["value"].mean()
            sheet.curve(panel, means.index, means, f"{factor:g}x")
        panel.set_xscale("symlog", base=2, linthresh=1)
        panel.set_title(CURVES[curve][0], fontsize="medium")
        panel.set_xlabel(CURVES[curve][1], fontsize=plots.SMALL)
    sheet.save(path)


def draw_frequencies(mine: pd.DataFrame, path: Path) -> None:
    """Draws the mean norms of queries and keys by layer and frequency, at the least factor."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    for panel, (quantity, title) in zip(figure.subplots(1, 2), NORMS.items(), strict=True):
        found: Any = inspection.values(mine, "frequencies", quantity)
        found = found[found["factor"] == found["factor"].min()]
        wide = found.pivot_table(index="at", columns="layer", values="value", aggfunc="mean")
        panel.grid(visible=False)
        image = panel.imshow(wide.to_numpy(dtype=float), aspect="auto", origin="upper", vmin=0, cmap="viridis")
        figure.colorbar(image, ax=panel, label="mean 2-norm")
        panel.set_xticks(range(len(wide.columns)), [str(layer) for layer in wide.columns])
        panel.set_title(title)
        panel.set_xlabel("layer")
        panel.set_ylabel("frequency (0: the fastest)")
    plots.save(figure, path)
