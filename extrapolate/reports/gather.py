"""The tables that evaluated runs hold, read together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.evaluation.names import INSPECTIONS_TABLE, PROBES_TABLE, TASKS_TABLE
from extrapolate.folders import RUN_FILE, below, listed, unique_names
from extrapolate.results.columns import Table

TEXT, DOCUMENTS = "evals.parquet", "eval_documents.parquet"
PAGE = "report.md"  # what a report writes beside the tables that it copied
HTML_PAGE = "report.html"


@dataclass(frozen=True)
class Evaluated:
    """Folders that hold tables, each with the name of its run among them; and in words, what was left out."""

    names: Mapping[Path, str]
    left_out: tuple[str, ...]

    def evals(self) -> list[dict[str, Any]]:
        """The rows of every `evals.parquet`. Raises UserError where one is damaged."""
        return self.rows(TEXT, results.EVALS)

    def documents(self) -> list[dict[str, Any]]:
        """The rows of every `eval_documents.parquet`. Raises UserError where one is damaged or missing."""
        return self.rows(DOCUMENTS, results.EVAL_DOCUMENTS, beside=TEXT)

    def probes(self) -> list[dict[str, Any]]:
        """The rows of every `eval_probes.parquet`. Raises UserError where one is damaged."""
        return self.rows(PROBES_TABLE, results.PROBES)

    def rows(self, file: str, table: Table, beside: str | None = None) -> list[dict[str, Any]]:
        """The rows of a file in all folders that have it, or that have the file `beside`.

        Runs whose folders have one name are told apart by their paths. A table from elsewhere keeps its names. Raises
        UserError where a file is damaged or missing.
        """
        return [
            row | {"run": name} if row["run"] == folder.name else row
            for folder, name in self.names.items()
            if (folder / (beside or file)).exists()
            for row in results.read(folder / file, table)
        ]


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
    return any((folder / name).exists() for name in (TEXT, PROBES_TABLE, INSPECTIONS_TABLE, TASKS_TABLE))
