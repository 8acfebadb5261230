"""The tables that evaluated runs hold, read together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.evaluation.names import INSPECTIONS_TABLE, PROBES_TABLE, TASKS_TABLE
from extrapolate.folders import RUN_FILE, below, listed, unique_names
from extrapolate.results.columns import Table

TEXT, DOCUMENTS = "evals.parquet", "eval_documents.parquet"
PAGE = "report.md"  # what a report writes beside the tables that it copied
HTML_PAGE = "report.html"
REPORTED_PROBES = "probes.parquet"  # what it writes of their tables of probes


@dataclass(frozen=True)
class Evaluated:
    """Folders that hold tables, each with the name of its run among them; and in words, what was left out."""

    names: Mapping[Path, str]
    left_out: tuple[str, ...]

    def evals(self) -> list[dict[str, Any]]:
        """The rows of every `evals.parquet`. Raises UserError where one is damaged."""
        return self.rows(TEXT, results.EVALS)

    def documents(self, missing: bool = False) -> pa.Table:
        """The rows of every `eval_documents.parquet`, as columns (see `results.read_columns`).

        Where there are losses on text, there must be one, unless some may be `missing`. Raises UserError where one is
        damaged or missing.
        """
        found = [results.EVAL_DOCUMENTS.schema().empty_table()]
        for folder, name in self.names.items():
            if not (folder / (DOCUMENTS if missing else TEXT)).exists():
                continue
            rows = results.read_columns(folder / DOCUMENTS, results.EVAL_DOCUMENTS)
            if name != folder.name:
                rows = called(rows, name, before=folder.name)
            found.append(rows)
        return pa.concat_tables(found[1:] or found)

    def probes(self) -> list[dict[str, Any]]:
        """The rows of every `eval_probes.parquet`, of a report `probes.parquet`. Raises UserError where damaged."""
        return self.rows(PROBES_TABLE, results.PROBES)

    def rows(self, file: str, table: Table) -> list[dict[str, Any]]:
        """The rows of a file in all folders that have it.

        Runs whose folders have one name are told apart by their paths. A table from elsewhere keeps its names. Raises
        UserError where a file is damaged.
        """
        return [
            row | {"run": name} if row["run"] == folder.name else row
            for folder, name in self.names.items()
            if (path := table_in(folder, file)) is not None
            for row in results.read(path, table)
        ]


def called(rows: pa.Table, name: str, before: str | None = None) -> pa.Table:
    """Columns in which the run has another name: each run, or the one that had the name `before`."""
    run = rows["run"].cast(pa.string())
    own = pa.repeat(name, len(rows)) if before is None else pc.if_else(pc.equal(run, before), name, run)
    return rows.set_column(rows.column_names.index("run"), "run", own.dictionary_encode())


def table_in(folder: Path, file: str) -> Path | None:
    """Where a folder has a table, None where it has not: that of probes has another name in a report."""
    names = (file, REPORTED_PROBES) if file == PROBES_TABLE else (file,)
    return next((folder / name for name in names if (folder / name).exists()), None)


def gather(paths: Sequence[Path], reports: bool = False) -> Evaluated:
    """The evaluated runs at and below some folders, each once. Below a folder with tables nothing is searched.

    Runs that are not evaluated, and without `reports` the tables that an earlier report copied, are left out. Raises
    UserError where a path is no folder, or holds no evaluated run.
    """
    found: dict[Path, None] = {}
    unevaluated: list[Path] = []
    copies: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; train and evaluate runs first")
        inside = [path] if _has_tables(path) else []
        if not inside:
            for folder in below(path):
                if not _has_tables(folder):
                    unevaluated += [folder] if (folder / RUN_FILE).exists() else []
                elif (folder / PAGE).exists() and not reports:
                    copies.append(folder)
                else:
                    inside.append(folder)
        if not inside:
            raise UserError(f"{path} holds no evaluated run; evaluate with: extrapolate eval-lengths {path}")
        found.update(dict.fromkeys(folder.resolve() for folder in inside))
    left_out = []
    if unevaluated:
        left_out.append(f"left out, for they are not evaluated: {listed(unevaluated)}")
    if copies:
        left_out.append(f"left out, for they are reports on other runs: {listed(copies)}")
    return Evaluated(unique_names(found), tuple(left_out))


def _has_tables(folder: Path) -> bool:
    return any(table_in(folder, name) is not None for name in (TEXT, PROBES_TABLE, INSPECTIONS_TABLE, TASKS_TABLE))
