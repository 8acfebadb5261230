"""Probes: accuracy by length, and by length and depth."""

from collections.abc import Sequence
from functools import partial

from extrapolate import results
from extrapolate.reports import probes
from extrapolate.reports.material import Material
from extrapolate.reports.page import Heading, Table, Text
from extrapolate.reports.sections.base import Part, Section, sections


@sections.register("probes")
class Probes(Section):
    """The accuracy of each model on one probe, by length and by depth."""

    chapter = "Probes"
    place = 30
    files = ("probes.parquet",)

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return sorted(set(material.probes["probe"])) if len(material.probes) else []

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        rows = material.probes[material.probes["probe"] == subject]
        by_length = probes.by_length(rows)
        blocks = [
            Heading(2, f"Probe {subject}"),
            Table(by_length, f"probe {subject}, accuracy"),
            Text(probes.caption(rows)),
            Text("By depth: at 0 the block is farthest from the question, at 1 next to it."),
            Table(probes.by_depth(rows)),
        ]
        # One file for all probes.
        whole = partial(results.write, rows=probes.records(material.probes), table=results.PROBES)
        return Part(blocks, {"probes.parquet": whole})
