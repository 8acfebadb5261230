"""Reads the tables of evaluated runs together."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from safetensors import SafetensorError, safe_open

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.folders import LOG, METRICS, RUN_FILE, STATE, WEIGHTS, below, listed, told_apart
from extrapolate.names import DOCUMENTS_TABLE as DOCUMENTS
from extrapolate.names import PROBES_TABLE
from extrapolate.names import TEXT_TABLE as TEXT
from extrapolate.reports.study import exchanged, without_run
from extrapolate.results.columns import Table
from extrapolate.results.identity import Trained, own_versions, run_of, trained
from extrapolate.statistics.documents import belonging

PAGE = "report.md"  # what a report writes beside the tables that it copied
HTML_PAGE = "report.html"
RECORD = "extrapolate"  # in the header of a run's weights: how they were made
REPORTED_PROBES = "probes.parquet"  # a report's copy of the tables of probes

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """The rows of one run in one folder, under the name that the run has there; its tables by file.

    own: whether the folder is the run's own; then all rows in it are of that run, and its name is the folder's.
    """

    folder: Path
    name: str
    own: bool
    tables: Mapping[str, pa.Table]

    @property
    def place(self) -> tuple[Path, str]:
        """The folder in which the run has its name. A copy of its tables may be in a folder of that name."""
        return (self.folder.parent if self.folder.name == self.name else self.folder), self.name

    def documents(self) -> pa.Table:
        """The rows of documents."""
        rows = results.read_columns(self.folder / DOCUMENTS, results.EVAL_DOCUMENTS)
        return rows if self.own else _of_run(rows, self.name)


@dataclass(frozen=True)
class Evaluated:
    """Runs that have tables, by a distinct name, each with the parts in which its rows were found.

    names: the names of the runs that have a folder, by folder. left_out: what was left out, in words.
    exchanged: the folders of studies' cells that hold a run with other settings or another seed.
    """

    names: Mapping[Path, str]
    left_out: tuple[str, ...]
    runs: Mapping[str, Sequence[Part]] = field(default_factory=dict)
    exchanged: Collection[Path] = ()

    def weights(self, runs: Collection[str]) -> set[str]:
        """The hashes of the weights of these runs that have rows."""
        tables = [table for run in runs for part in self.runs[run] for table in part.tables.values()]
        return {sha256 for table in tables for sha256 in table["weights_sha256"].unique().to_pylist()}

    def evals(self) -> list[Row]:
        """The rows of every `evals.parquet`. Raises UserError as `rows` does."""
        return self.rows(TEXT)

    def documents(self) -> pa.Table:
        """The rows of every `eval_documents.parquet`, as columns (see `results.read_columns`).

        Raises UserError if one is damaged, or missing beside losses on text.
        """
        found = [results.EVAL_DOCUMENTS.schema().empty_table()]
        for name, parts in self.runs.items():
            taken: set[tuple[Any, ...]] = set()
            every = [(part.documents(), part) for part in parts if TEXT in part.tables]
            for rows, part in sorted(every, key=lambda one: -len(one[0])):  # with losses by position, before sums
                mine = _by_key(part.tables[TEXT], results.EVALS)
                if taken:
                    new = [row for key, row in mine.items() if key not in taken]
                    rows = belonging(rows, new, _without_run(results.EVALS))
                taken |= mine.keys()
                found.append(called(rows, name))
        return pa.concat_tables(found[1:] or found)

    def asked(self, values: Mapping[str, Collection[object]]) -> "Evaluated":
        """Without losses and probes that have other values in a column; `left_out` says which.

        It is for a study's report: its runs may have rows of what the study asked for earlier.
        """
        others: dict[str, None] = {}

        def kept(rows: pa.Table) -> pa.Table:
            for column in (name for name in values if name in rows.column_names):
                found = rows[column].to_pylist()
                others.update(dict.fromkeys(f"{column} {value}" for value in found if value not in values[column]))
                rows = rows.filter(pa.array([value in values[column] for value in found], pa.bool_()))
            return rows

        def of_part(part: Part) -> Part:
            tables = {file: kept(rows) if file in (TEXT, PROBES_TABLE) else rows for file, rows in part.tables.items()}
            return replace(part, tables=tables)

        runs = {name: [*map(of_part, parts)] for name, parts in self.runs.items()}
        said = [f"left out, for the study does not ask for it: {listed(list(others))}"] if others else []
        return replace(self, runs=runs, left_out=(*self.left_out, *said))

    def unseen(self, rows: pd.DataFrame, what: str, only: Mapping[str, Any]) -> list[str]:
        """A warning that names the runs without any of these rows, which hold `what` and were restricted to `only`."""
        restricted = "".join(f" with {column} {value}" for column, value in only.items())
        without = sorted(set(self.runs) - set(rows["run"]))
        return [f"left out, for they have no {what}{restricted}: {listed(without)}"] if without else []

    def rows(self, file: str) -> list[Row]:
        """The rows of a file for all runs, under the runs' names. A row that several folders have is taken once.

        Raises UserError if the folders disagree about a row.
        """
        table, found = results.KEPT[file], []
        for name, parts in self.runs.items():
            taken: dict[tuple[Any, ...], tuple[Row, Part]] = {}
            for part in parts:
                for key, row in _by_key(part.tables[file], table).items() if file in part.tables else ():
                    before, other = taken.setdefault(key, (row, part))
                    for value in table.values:
                        if str(before[value]) == str(row[value]):  # NaN is like NaN
                            continue
                        sources = sources_of([part.folder for part in parts])
                        raise UserError(
                            f"{sources[other.folder]} and {sources[part.folder]} differ in {file} for the same "
                            f"weights, {name}: the {value} of {row['model']} at {row['factor']:g}x is "
                            f"{before[value]} and {row[value]}. Leave out one"
                        )
            found += [row | {"run": name} for row, _ in taken.values()]
        return found

    def check_versions(self) -> None:
        """Raises UserError if tables have rows of different versions of an extension's file."""
        versions: dict[str, tuple[str, Path]] = {}
        for part in (part for parts in self.runs.values() for part in parts):
            for table in part.tables.values():
                rows = table.select(["extension", "extension_sha256"]).group_by(["extension", "extension_sha256"])
                for row in rows.aggregate([]).to_pylist():
                    for own, version in own_versions(row["extension"], row["extension_sha256"]).items():
                        before, folder = versions.setdefault(own, (version, part.folder))
                        if before != version:
                            where = folder if folder == part.folder else f"{folder} and {part.folder}"
                            raise UserError(
                                f"{own} in {where} is of different versions of that file: evaluate all with the same "
                                "version, which drops the rows of others"
                            )


def _without_run(table: Table) -> list[str]:
    return [name for name in table.key if name != "run"]


def _by_key(rows: pa.Table, table: Table) -> dict[tuple[Any, ...], Row]:
    """The rows of one run, by their key."""
    return {tuple(row[name] for name in _without_run(table)): row for row in rows.to_pylist()}


def sources_of(folders: Sequence[Path]) -> dict[Path, str]:
    """The folders' names in messages: their paths from the folder that holds all of them."""
    common = Path(os.path.commonpath([folder.parent for folder in folders]))
    return {folder: folder.relative_to(common).as_posix() for folder in folders}


def _of_run(rows: pa.Table, name: str) -> pa.Table:
    return rows.filter(pc.equal(rows["run"].cast(pa.string()), name))


def _tables(folder: Path) -> dict[str, pa.Table]:
    """The tables in a folder. Raises UserError if one is damaged."""
    return {
        file: results.read_columns(path, table)
        for file, table in results.KEPT.items()
        if (path := table_in(folder, file)) is not None
    }


def _parts(folder: Path, tables: Mapping[str, pa.Table]) -> Iterator[Part]:
    """The runs that have rows in a folder."""
    if (folder / RUN_FILE).exists():
        yield Part(folder, folder.name, True, tables)
        return
    for name in dict.fromkeys(name for rows in tables.values() for name in rows["run"].unique().to_pylist()):
        mine = {file: _of_run(rows, name) for file, rows in tables.items()}
        yield Part(folder, name, False, {file: rows for file, rows in mine.items() if len(rows)})


def _run(part: Part) -> Trained:
    """The run that the rows of a part are of. Raises UserError if they are of several trainings."""
    run = run_of(set().union(*map(trained, part.tables.values())))
    if run is None:
        raise UserError(
            f"{part.folder} holds results of several trainings"
            + (
                ": evaluate it again, which drops those of weights that are gone, or delete its tables"
                if part.own
                else f" as one run, {part.name}: make it again from the runs, or leave it out"
            )
        )
    return run


def called(rows: pa.Table, name: str) -> pa.Table:
    """The rows, with this name for their run."""
    return rows.set_column(rows.column_names.index("run"), "run", pa.repeat(name, len(rows)).dictionary_encode())


def table_in(folder: Path, file: str) -> Path | None:
    """The path of a table in a folder, or None. The table of probes has another name in a report."""
    names = (file, REPORTED_PROBES) if file == PROBES_TABLE else (file,)
    return next((folder / name for name in names if (folder / name).exists()), None)


def gather(paths: Sequence[Path]) -> Evaluated:
    """The evaluated runs at and below some folders, each once.

    A run is identified by its training settings and its weights (`results.identity`), even if its folder was renamed.
    Its name is that of its folder, or the one that copied rows give it, with as much of the path as distinguishes it
    from the others. Left out are runs that are not evaluated or have no result of their last weights, and the tables
    that a report in a folder below copied. Raises UserError if a path is no folder, holds no evaluated run, or has rows
    of several trainings under one name.
    """
    found: dict[Path, None] = {}
    unevaluated: list[Path] = []
    copies: list[Path] = []
    left_out: list[str] = []
    unbegun: list[Path] = []
    failed: dict[Path, str] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; train and evaluate runs first")
        inside: list[Path] = []
        not_begun, without_result = without_run(path)
        unbegun, failed = unbegun + not_begun, failed | without_result
        folders, unsearched = below(path, tables=True)
        left_out += unsearched
        for folder in folders:
            if all(table_in(folder, name) is None for name in results.KEPT):
                unevaluated += [folder] if (folder / RUN_FILE).exists() else []
            elif folder != path and (folder / PAGE).exists():
                copies.append(folder)
            else:
                inside.append(folder)
        if not inside:
            raise UserError(f"{path} holds no evaluated run; evaluate with: extrapolate eval-lengths {path}")
        found.update(dict.fromkeys(folder.resolve() for folder in inside))
    unbegun = [run for run in unbegun if run.resolve() not in found]
    failed = {run: reason for run, reason in failed.items() if run.resolve() not in found}
    left_out += [f"left out, for it failed: {run} ({reason})" for run, reason in failed.items()]
    for why, folders in (
        ("they are not evaluated", [folder for folder in unevaluated if folder not in failed]),
        ("the sweep has not begun them", unbegun),
        ("they are reports, with rows of runs", copies),
    ):
        left_out += [f"left out, for {why}: {listed(folders)}"] if folders else []
    parts = [part for folder in found for part in _parts(folder, _tables(folder))]
    if stale := [part.folder for part in parts if _of_other_weights(part)]:
        if len(stale) == len(parts):
            raise UserError(f"{listed(stale)}: no result is of the weights that are there now; evaluate again")
        left_out.append(f"left out, for no result is of the weights that are there now: {listed(stale)}")
    return _evaluated([part for part in parts if part.folder not in stale], left_out)


def _of_other_weights(part: Part) -> bool:
    """Whether a run's folder has weights, or a training in progress, that none of its results is of.

    Weights that are damaged or lack our record are not the evaluated ones.
    """
    if not part.own:
        return False
    if not (part.folder / WEIGHTS).is_file():
        state, log, metrics = ((part.folder / name).is_file() for name in (STATE, LOG, METRICS))
        return state or (log and not metrics) or _of_another_configuration(part)
    try:
        values = weights_of(part.folder)
    except OSError:  # no permission to read it, so nothing is known
        return False
    evaluated = [one for rows in part.tables.values() for one in trained(rows)]
    last = max(one.step for one in evaluated)
    return all(one.weights_sha256 != values for one in evaluated if one.step == last)


def weights_of(run: Path) -> str | None:
    """The hash that the header of a run's last weights has; None if they are missing, damaged or lack our record.

    Raises OSError if they cannot be read.
    """
    try:
        with safe_open(run / WEIGHTS, framework="numpy") as file:
            return str(json.loads((file.metadata() or {})[RECORD])["values"])
    except (FileNotFoundError, SafetensorError, TypeError, KeyError, ValueError):
        return None


def _of_another_configuration(part: Part) -> bool:
    from extrapolate.runs.config import training_of  # these import torch, which a report rarely needs
    from extrapolate.runs.run import Run

    try:
        here = training_of(Run.open(part.folder).config)
    except UserError:  # it is damaged, so nothing is known
        return False
    return all(one[: len(here)] != here for rows in part.tables.values() for one in trained(rows))


def _evaluated(found: Collection[Part], left_out: list[str]) -> Evaluated:
    others = exchanged(
        {part.folder: [rows for rows in part.tables.values() if len(rows)] for part in found if part.own}
    )
    if others:
        left_out.append(
            "left out of the questions and published tables of their studies, for they are not the runs that the cells "
            f"ask for: {listed(others)}"
        )
    runs: dict[Trained, list[Part]] = {}
    for part in found:
        runs.setdefault(_run(part), []).append(part)
    for parts in runs.values():
        parts.sort(key=lambda part: not part.own)  # the name is that of the run's own folder
        if again := [part.folder for part in parts[1:] if part.own]:
            left_out.append(f"taken once, for they hold the run {parts[0].folder} too: {listed(again)}")
    named = told_apart({run: parts[0].place for run, parts in runs.items()})
    names = {part.folder: named[run] for run, parts in runs.items() for part in parts if part.place[0] != part.folder}
    evaluated = Evaluated(names, tuple(left_out), {named[run]: parts for run, parts in runs.items()}, others)
    evaluated.check_versions()
    return evaluated
