"""Probes: accuracies and margins by length, and by length and depth."""

import re
from collections.abc import Sequence
from functools import partial

import pandas as pd

from extrapolate import results
from extrapolate.reports import probes
from extrapolate.reports.chart import MOST_ROWS, Chart, Heat
from extrapolate.reports.page import Block, Details, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, Writer, picture, sections
from extrapolate.reports.svg import Plot

FEWER = "The picture has the first {} of {} rows."


@sections.register("probes")
class Probes(Section):
    """The accuracy and the margin of each model on one probe, by length and by depth."""

    chapter = "Probes"
    place = 30
    files = ("probes.*",)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return sorted(set(data.probes["probe"])) if len(data.probes) else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        rows = data.probes[data.probes["probe"] == subject]
        # One file for all probes.
        files: dict[str, Writer] = {
            "probes.parquet": partial(results.write, rows=probes.records(data.probes), table=results.PROBES)
        }
        blocks: list[Block] = [
            Heading(2, f"Probe {subject}"),
            Table(probes.by_length(rows), f"probe {subject}, accuracy (chance {probes.chance(rows)})"),
            Text(f"Chance is {probes.chance(rows)}."),
            Details([Text(probes.caption(rows))]),
        ]
        if (worst := probes.worst_seed(rows)) is not None:
            blocks += [Text("Accuracy of the worst seed at each length:"), Table(worst)]
        if probes.has_margins(rows):
            blocks += _margins(rows, subject)
        if probes.has_depths(rows):
            by_depth = probes.by_depth(rows)
            map_ = _map(by_depth, subject)
            file = f"probes.{re.sub('[^A-Za-z0-9-]+', '-', subject)}.png"
            said = f"Accuracy by depth and length. {probes.caption(rows)}"
            drawn = Chart("accuracy by depth and length", file, map_, caption=said)
            blocks += [Text("By depth: at 0 the block is farthest from the question, at 1 next to it."), Plot(drawn)]
            if len(map_.rows) < len(by_depth):
                blocks.append(Text(FEWER.format(len(map_.rows), len(by_depth))))
            blocks.append(Table(by_depth))
            files |= picture(drawn)
        return Part(blocks, files)


def _margins(rows: pd.DataFrame, subject: str) -> list[Block]:
    """The margins; folded away, the choices and the margins by depth."""
    folded = [Text(probes.margin_caption(rows)), Table(probes.by_length(rows, "choice"))]
    if probes.has_depths(rows):
        folded.append(Table(probes.by_depth(rows, "margin")))
    return [Table(probes.by_length(rows, "margin"), f"probe {subject}, margin in nats"), Details(folded)]


def _map(by_depth: pd.DataFrame, subject: str) -> Heat:
    """The accuracies of the first models, a row for each depth."""
    first = by_depth.head(MOST_ROWS)
    columns = {name: f"{name[len('Accuracy (ev=') : -1]}x" for name in map(str, first) if name.startswith("Accuracy")}
    names = [f"{model}, depth {depth}" for model, depth in zip(first["Model"], first["Depth"], strict=True)]
    title, values_RC = f"Accuracy by depth and length, probe {subject}", first[list(columns)].to_numpy(float)
    return Heat(title, names, list(columns.values()), values_RC, most=1.0, digits=2)
