"""Where the numbers of a report come from: protocols, runs, what was left out, and the commands that reproduce it."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from extrapolate.evaluation.protocols.base import known_by, protocols
from extrapolate.names import AS_TRAINED
from extrapolate.reports.page import Block, Code, Drawing, Heading, Table, Text
from extrapolate.reports.protocol_picture import svg
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, sections

_RUN = {
    "run": "Run", "model": "Model", "seed": "Seed", "tokens": "Tokens", "parameters": "Parameters",
    "training_precision": "Precision", "training_commit": "Commit", "training_machine": "Machine",
    "weights_sha256": "Weights (SHA-256)",
}  # fmt: skip


@sections.register("provenance")
class Provenance(Section):
    """How the targets were chosen, which runs were evaluated where, what was left out, and how to reproduce it."""

    chapter = "Where the numbers come from"
    place = 90

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["runs"] if data.rows else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        blocks: list[Block] = []
        for protocol in data.rows:
            blocks += _protocol(protocol)
        left_out = data.warnings or ["Nothing was left out."]
        blocks += [
            Heading(2, "Runs"),
            Table(_runs(pd.concat(data.rows.values()))),
            Heading(2, "What was left out"),
            *(Text(text[0].upper() + text[1:], code=True) for text in left_out),
            Heading(2, "How to make it again"),
            Text("This page, from the tables of the runs:"),
            Code(data.command),
            Text("A run, from its settings, which `config.json` in its folder holds, on the same corpus:", code=True),
            Code("extrapolate train --config RUN/config.json --out NEW"),
        ]
        return Part(blocks)


def _protocol(name: str) -> list[Block]:
    """A protocol in words, and its picture; only its name if it is a user's own."""
    plain, _, arguments = name.partition(":")
    if plain not in protocols.names():
        return [Heading(2, f"Protocol {name}"), Text("This protocol is a user's own.")]
    said = " ".join((known_by(name).__doc__ or "").split())
    if arguments:
        said += f" Here it was used with {arguments}; the picture shows {plain} without arguments."
    return [
        Heading(2, f"How {name} chooses its targets"),
        Text(said, code=True),
        Drawing(f"the windows of {plain} on one short document, and the control's", svg(plain)),
    ]


def _runs(rows: pd.DataFrame) -> pd.DataFrame:
    plain = rows[rows["extension"] == AS_TRAINED].drop_duplicates("run").sort_values("run")
    table = plain[list(_RUN)].assign(weights_sha256=plain["weights_sha256"].str[:12])
    return table.map(_text).rename(columns=_RUN)


def _text(value: Any) -> str:
    if pd.isna(value):
        return "unknown"
    return value if isinstance(value, str) else f"{value:,.0f}"
