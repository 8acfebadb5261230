"""Writes a report: the page, the sections' files, and the rows that it was made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import files, results
from extrapolate.errors import UserError
from extrapolate.reports.gather import DOCUMENTS, PAGE, TEXT, gather
from extrapolate.reports.material import Material, collect
from extrapolate.reports.page import Block, Heading, Table, markdown
from extrapolate.reports.sections.base import Writer, in_order, parts


@dataclass(frozen=True)
class Written:
    """What a report wrote, and what the user should know.

    files: their names. tables: the losses by evaluation length of each protocol. shown: the tables that
    `extrapolate report` prints, each with its `title` and its `frame`. warnings: what was left out, for example.
    """

    files: Sequence[str]
    tables: Mapping[str, pd.DataFrame]
    shown: Sequence[Table]
    warnings: Sequence[str]


def write_report(runs: Sequence[Path], out: Path, baseline: str | None, only: Mapping[str, Any]) -> Written:
    """Writes the report on the evaluated runs at and below some folders. `only` restricts rows: column -> value.

    Raises UserError where there is nothing to report, or rows that cannot be compared.
    """
    evaluated = gather(runs)
    evals = evaluated.evals()
    documents = evaluated.documents() if evals else []
    material, warnings = collect(evaluated, evals, documents, baseline, only)
    blocks, beside = lay_out(material)
    # Everything that can be refused has been: from here on, files.
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, not a folder; choose another `out`")
    out.mkdir(parents=True, exist_ok=True)
    copies: dict[str, Writer] = {}
    if evals:
        copies[TEXT] = partial(results.write, rows=evals, table=results.EVALS)
        copies[DOCUMENTS] = partial(results.write, rows=documents, table=results.EVAL_DOCUMENTS)
    page: dict[str, Writer] = {PAGE: partial(files.write_text, text=markdown(blocks))}
    made = {**copies, **beside, **page}
    for name, write in made.items():
        write(out / name)
    patterns = (PAGE, TEXT, DOCUMENTS, *(pattern for section in in_order() for pattern in section.files))
    for stale in (path for pattern in patterns for path in out.glob(pattern) if path.name not in made):
        stale.unlink()  # of an earlier report on other rows
    shown = [block for block in blocks if isinstance(block, Table) and block.title]
    return Written(list(made), material.losses, shown, [*evaluated.left_out, *warnings])


def lay_out(material: Material) -> tuple[list[Block], dict[str, Writer]]:
    """The blocks of the page, and the files beside it. Raises UserError where a section cannot be written."""
    blocks: list[Block] = []
    beside: dict[str, Writer] = {}
    chapter = None
    for section in in_order():
        if section.continues is not None:
            continue
        for part in parts(section, material):
            if section.chapter != chapter:
                chapter = section.chapter
                blocks.append(Heading(1, chapter))
            blocks += part.blocks
            beside |= part.files
    return blocks, beside
