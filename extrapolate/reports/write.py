"""Writes a report: the page, the sections' files, and the rows that it was made from."""

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from extrapolate import files, results
from extrapolate.errors import UserError
from extrapolate.folders import join_names
from extrapolate.reports.fonts import NO_FONT, collected
from extrapolate.reports.load_tables import DOCUMENTS, HTML_PAGE, PAGE, TEXT, load_tables
from extrapolate.reports.page import Block, Heading, Quotable, Table, html, markdown
from extrapolate.reports.plots import own_settings
from extrapolate.reports.report_data import ReportData, collect
from extrapolate.reports.sections.base import Writer, in_order, parts
from extrapolate.statistics.comparison import CONTROL
from extrapolate.statistics.documents import belonging


@dataclass(frozen=True)
class Written:
    """What a report wrote, and what the user should know.

    files: the names of the files. rows: the losses on text, a row for each protocol, model and length: `protocol`,
    `model`, `factor`; `loss`, the mean over `seeds` (None if nothing was measured at this length); `training_time`
    relative to the baseline's; `difference`, the loss minus the control's, with its 95 % interval from `low` to `high`,
    nats; and `verdict`, without correction. answer: what the intervals say, in at most two sentences, and a sentence if
    a learning rate is at the end of its grid; empty if there are no losses. tables: the losses by evaluation length,
    for each protocol. shown: the tables that `extrapolate report` prints, each with its `title` and its `frame`.
    warnings: what was left out, for example.
    """

    files: Sequence[str]
    tables: Mapping[str, pd.DataFrame]
    shown: Sequence[Table]
    warnings: Sequence[str]
    rows: Sequence[Mapping[str, Any]] = ()
    answer: str = ""


@own_settings()
@np.errstate(invalid="ignore", over="ignore")  # infinite losses: the tables show them
def write_report(
    runs: Sequence[Path],
    out: Path,
    baseline: str | None,
    only: Mapping[str, Any],
    asked: Mapping[str, Collection[object]] | None = None,
) -> Written:
    """Writes the report on the evaluated runs at and below some folders. `only` restricts rows: column -> value.

    asked: the values that a study asks for, by column; losses and probes with others are left out, and named.

    An earlier report at `out` is replaced as a whole, once the new one is complete. Raises UserError if there is
    nothing to report, rows cannot be compared, `out` holds something else, or another process is writing it.
    """
    check_replaceable(out)  # before minutes of work
    evaluated = load_tables(runs) if asked is None else load_tables(runs).asked(asked)
    evals = evaluated.evals()
    documents = evaluated.documents()
    if asked is not None:
        documents = belonging(documents, evals, ("run", *results.EVALS.key))
    data = collect(evaluated, evals, documents, baseline, only)
    data = replace(data, command=command(runs, {"baseline": baseline, **only}))
    blocks, beside = lay_out(data)
    # Everything that can be refused has been: from here on, files.
    copies: dict[str, Writer] = {}
    if evals:
        copies[TEXT] = partial(results.write, rows=evals, table=results.EVALS)
        copies[DOCUMENTS] = partial(results.write_columns, data=documents, table=results.EVAL_DOCUMENTS)
    page: dict[str, Writer] = {
        PAGE: partial(files.write_text, text=markdown(blocks)),
        HTML_PAGE: partial(files.write_text, text=html(blocks, _title(runs))),
    }
    made = {**copies, **beside, **page}
    with files.new_folder(out, check_replaceable) as folder, collected(NO_FONT) as lacking:
        for name, write in made.items():
            write(folder / name)
    printed = [block for block in blocks if isinstance(block, Table) and block.title]
    warnings = [*data.warnings, *dict.fromkeys(one.string for one in lacking)]
    said = " ".join(block.text for block in blocks if isinstance(block, Quotable))
    return Written(list(made), data.losses, printed, warnings, _rows(data), said)


def _rows(data: ReportData) -> list[dict[str, Any]]:
    """See `Written.rows`."""
    against = {(one.protocol, one.model, one.factor): one for one in data.compared if one.other == CONTROL}
    found = []
    for protocol, table in data.losses.items():
        factors = sorted(set(data.rows[protocol]["factor"]))
        for row in table.astype(object).where(table.notna(), None).to_dict("records"):
            for factor in factors:
                one = against.get((protocol, row["Model"], factor))
                interval = None if one is None else one.difference
                found.append(
                    {
                        "protocol": protocol, "model": row["Model"], "factor": factor,
                        "loss": row[f"Loss (ev={factor:g})"], "seeds": row["Seeds"],
                        "training_time": row["Training time"], "difference": interval and interval.mean,
                        "low": interval and interval.low, "high": interval and interval.high,
                        "verdict": None if one is None else one.verdict(),
                    }
                )  # fmt: skip
    return found


def command(runs: Sequence[Path], asked: Mapping[str, Any]) -> str:
    """The command that makes the report again. asked: values by flag; None leaves the flag out."""
    words = ["extrapolate", "report", *map(str, runs)]
    for name, value in asked.items():
        words += [] if value is None else [f"--{_FLAGS.get(name, name)}", str(value)]
    return shlex.join(words)


_FLAGS = {"seq_len": "seq-len", "corpus_hash": "corpus"}


def _title(runs: Sequence[Path]) -> str:
    """The page's title, with the name of the folder that holds all runs, or of the study above its folder `runs`."""
    folder = Path(os.path.commonpath([path.resolve() for path in runs]))
    return f"Beyond the training length: {(folder.parent if folder.name == 'runs' else folder).name}"


def check_replaceable(out: Path) -> None:
    """Raises UserError if a folder holds anything that no report wrote, since a report replaces the whole folder."""
    if not out.is_dir():
        return
    known = (PAGE, HTML_PAGE, TEXT, DOCUMENTS, *(name for one in in_order() for name in one.files))
    held = sorted(out.iterdir())
    foreign = [
        path.name
        for path in held
        if path.is_symlink() or not path.is_file() or not any(fnmatch(path.name, name) for name in known)
    ]
    if foreign:
        raise UserError(
            f"{out} holds what no report wrote ({join_names(foreign)}), and a report replaces its folder as a whole: "
            "move that away, or choose another `out`"
        )
    names = [path.name for path in held]
    if names and PAGE not in names:
        raise UserError(
            f"{out} holds tables ({join_names(names)}) without a {PAGE}: if they are no report's, "
            "choose another `out`; else delete the folder"
        )


def lay_out(data: ReportData) -> tuple[list[Block], dict[str, Writer]]:
    """The blocks of the page, and the files beside it. Raises UserError if a section cannot be written."""
    blocks: list[Block] = []
    beside: dict[str, Writer] = {}
    chapter = None
    for section in in_order():
        if section.continues is not None:
            continue
        for part in parts(section, data):
            if section.chapter != chapter:
                chapter = section.chapter
                blocks.append(Heading(1, chapter))
            blocks += part.blocks
            beside |= part.files
    return blocks, beside
