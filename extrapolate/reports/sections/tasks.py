"""Benchmarks: the scores on lm-eval's tasks, beside a paper's."""

from collections.abc import Sequence
from functools import partial

from extrapolate import results
from extrapolate.names import TASKS_TABLE
from extrapolate.reports import tasks
from extrapolate.reports.page import Block, Heading, Table, Text
from extrapolate.reports.published import of_tasks
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, sections

BESIDE = "{}, from {}: {}. {} Ours is `acc`, the share of questions whose right answer is the likeliest."


@sections.register("tasks")
class Tasks(Section):
    """The scores of each model on benchmarks, and a paper's on the same ones."""

    chapter = "Benchmarks"
    place = 32
    files = (TASKS_TABLE,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["benchmarks"] if len(data.tasks) else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        found, shown = data.rows_of(TASKS_TABLE), data.tasks
        blocks: list[Block] = []
        for title, table in tasks.by_shots(shown):
            blocks += [Heading(2, title[0].upper() + title[1:]), Table(table, title)]
        blocks.append(Text(tasks.caption(tasks.asked(shown))))
        for published in of_tasks():
            table = tasks.beside(published, shown)
            if len(table):
                said = BESIDE.format(published.title, published.source, published.theirs, published.note)
                blocks += [Heading(2, f"Beside {published.title}"), Table(table), Text(said)]
        return Part(blocks, {TASKS_TABLE: partial(results.write, rows=found, table=results.TASKS)})
