"""The base class of a report's sections: a section's place in the page, its files, and what it writes."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import ClassVar

import pandas as pd

from extrapolate import files, results, specs
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import is_papers
from extrapolate.reports import plots
from extrapolate.reports.chart import Chart
from extrapolate.reports.page import Block
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.tables import conditions
from extrapolate.results.described import Described

Writer = Callable[[Path], None]
LONGEST = 60  # characters of a protocol's name
_FILE = re.compile(r"[\w-][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Part:
    """What a section says about one subject: blocks of the page, and writers of files beside it, by name.

    Writers are called once all sections have made their parts, so that errors come before any file is written.
    """

    blocks: Sequence[Block]
    files: Mapping[str, Writer] = field(default_factory=dict)


class Section(ABC):
    """A section of a report. The first line of its docstring says what it shows.

    chapter: the title above it; the sections of a chapter stay together. place: sections are sorted by it.
    continues: the name of another section. Each part then follows that section's part on the same subject, and
    `chapter` and `place` are not needed. files: patterns of the names of its files, such as `loss_by_ev.*`. tables: the
    columns of its Parquet files, for `extrapolate columns` and docs/results.md.
    """

    chapter: ClassVar[str] = ""
    place: ClassVar[int] = 0
    continues: ClassVar[str | None] = None
    files: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[Described, ...]] = ()

    @staticmethod
    @abstractmethod
    def subjects(data: ReportData) -> Sequence[str]:
        """The subjects of its parts, such as protocols or probes; empty if the section does not apply."""

    @staticmethod
    @abstractmethod
    def part(data: ReportData, subject: str) -> Part:
        """The part on one subject. Raises UserError if it cannot be reported."""


sections: specs.Registry[Section] = specs.Registry("section")


def in_order() -> list[type[Section]]:
    """All sections by chapter and place, each followed by those that continue it."""
    named = [sections[name] for name in sections.names()]
    own = sorted((section for section in named if section.continues is None), key=lambda section: section.place)
    chapters = dict.fromkeys(section.chapter for section in own)
    ordered = [section for chapter in chapters for section in own if section.chapter == chapter]
    return [one for section in ordered for one in with_continuing(section)]


def with_continuing(section: type[Section]) -> list[type[Section]]:
    """A section, followed by those that continue it."""
    others = [sections[name] for name in sections.names()]
    below = [other for other in others if other.continues is not None and sections[other.continues] is section]
    return [section, *(one for other in below for one in with_continuing(other))]


def parts(section: type[Section], data: ReportData) -> Iterator[Part]:
    """A section's parts, each followed by those that continue it. Raises UserError if one cannot be reported."""
    for subject in section.subjects(data):
        for one in with_continuing(section):
            if subject in one.subjects(data):
                part = one.part(data, subject)
                unnamed = [name for name in part.files if not any(fnmatch(name, pattern) for pattern in one.files)]
                unnamed += [name for name in part.files if not _FILE.fullmatch(name)]
                assert not unnamed, f"{one.__name__}.files does not name {unnamed}"
                yield part


def suffix(protocol: str) -> str:
    """The suffix of a protocol's file names: `sliding:stride=16` gives `.sliding-stride-16`, the paper's protocol "".

    Raises UserError if it cannot be part of a path: a table may contain any text as a protocol.
    """
    name = re.sub(r"[:=,]", "-", protocol)
    if not _FILE.fullmatch(name) or len(name) > LONGEST:
        raise UserError(
            f"no file can be named after the protocol {protocol[:LONGEST]!r} of these tables: a protocol's name has "
            "letters, digits and dashes"
        )
    return "" if is_papers(protocol) else f".{name}"


def picture(chart: Chart) -> dict[str, Writer]:
    """The writers of a chart's picture, by the names of its files: PNG for pages, and PDF for papers."""
    return dict.fromkeys([chart.file, f"{Path(chart.file).stem}.pdf"], partial(plots.draw, chart))


def with_conditions(rows: pd.DataFrame, chart: Chart) -> Chart:
    """The chart, with the conditions under which one protocol's rows were made at the end of its caption."""
    return replace(chart, caption=f"{chart.caption} {conditions(rows)}")


def parquet(table: pd.DataFrame) -> Writer:
    """Writes a table to a Parquet file."""
    return partial(results.write_frame, frame=table)


def text(content: str) -> Writer:
    """Writes a text file."""
    return partial(files.write_text, text=content)
