"""Reads the tables of evaluated runs together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.folders import RESULTS, RUN_FILE, below, disambiguate, join_names
from extrapolate.names import DOCUMENTS_TABLE as DOCUMENTS
from extrapolate.names import PROBES_TABLE
from extrapolate.names import TEXT_TABLE as TEXT
from extrapolate.reports.study import exchanged, without_run
from extrapolate.results import kept
from extrapolate.results.columns import Table
from extrapolate.results.identity import Trained, run_of, trained
from extrapolate.statistics.documents import belonging

PAGE = "report.md"  # what a report writes beside the tables that it copied
HTML_PAGE = "report.html"

Row = dict[str, Any]


@dataclass(frozen=True)
class RunTables:
    """The rows of one run in one folder, under the name that the run has there; its tables by file.

    own: whether the folder is the run's own, whose rows are kept by setting; others hold whole tables.
    """

    folder: Path
    name: str
    own: bool
    tables: Mapping[str, pa.Table]

    @property
    def place(self) -> tuple[Path, str]:
        """The folder in which the run has its name. A copy of its tables may be in a folder of that name."""
        return (self.folder.parent if self.folder.name == self.name else self.folder), self.name

    def documents(self) -> pa.Table | None:
        """The rows of documents, if there are any."""
        if self.own:
            return kept.read_kept(self.folder, results.EVAL_DOCUMENTS, kept.weights_in(self.folder))
        return _of_run(results.read_columns(self.folder / DOCUMENTS, results.EVAL_DOCUMENTS), self.name)


@dataclass(frozen=True)
class LoadedTables:
    """Runs that have tables, by a distinct name, each with the parts in which its rows were found.

    names: the names of the runs that have a folder, by folder. left_out: what was left out, in words.
    exchanged: the folders of studies' cells that hold a run with other settings or another seed.
    """

    names: Mapping[Path, str]
    left_out: tuple[str, ...]
    runs: Mapping[str, Sequence[RunTables]] = field(default_factory=dict)
    exchanged: Collection[Path] = ()

    def weights(self, runs: Collection[str]) -> set[str]:
        """The hashes of the weights of these runs that have rows."""
        tables = [table for run in runs for part in self.runs[run] for table in part.tables.values()]
        return {sha256 for table in tables for sha256 in table["weights_sha256"].unique().to_pylist()}

    def evals(self) -> list[Row]:
        """The rows of losses on text."""
        return self.rows(TEXT)

    def documents(self) -> pa.Table:
        """Their rows by document, as columns (see `results.read_columns`).

        Raises UserError if a file is damaged, or missing beside losses on text.
        """
        found = [results.EVAL_DOCUMENTS.schema().empty_table()]
        for name, parts in self.runs.items():
            taken: set[tuple[Any, ...]] = set()
            every = [(rows, part) for part in parts if TEXT in part.tables and (rows := part.documents()) is not None]
            for rows, part in sorted(every, key=lambda one: -len(one[0])):  # with losses by position, before sums
                group = part.tables[TEXT].to_pylist()
                if taken:
                    new = [row for row in group if _key(row, results.EVALS) not in taken]
                    rows = belonging(rows, new, results.EVALS.key)
                taken |= {_key(row, results.EVALS) for row in group}
                found.append(called(rows, name))
        return pa.concat_tables(found[1:] or found)

    def targets(self) -> pa.Table:
        """Their losses by token, as columns, of the runs that keep them."""
        found = [results.EVAL_TARGETS.schema().empty_table()]
        for name, parts in self.runs.items():
            own = [kept.read_kept(one.folder, results.EVAL_TARGETS, kept.weights_in(one.folder)) for one in parts]
            found += [called(rows, name).cast(found[0].schema) for rows in own[:1] if rows is not None]
        return pa.concat_tables(found).unify_dictionaries()

    def asked(self, values: Mapping[str, Collection[object]]) -> "LoadedTables":
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

        def of_part(part: RunTables) -> RunTables:
            tables = {file: kept(rows) if file in (TEXT, PROBES_TABLE) else rows for file, rows in part.tables.items()}
            return replace(part, tables=tables)

        runs = {name: [*map(of_part, parts)] for name, parts in self.runs.items()}
        said = [f"left out, for the study does not ask for it: {join_names(list(others))}"] if others else []
        return replace(self, runs=runs, left_out=(*self.left_out, *said))

    def unseen(self, rows: pd.DataFrame, what: str, only: Mapping[str, Any]) -> list[str]:
        """A warning that names the runs without any of these rows, which hold `what` and were restricted to `only`."""
        restricted = "".join(f" with {column} {value}" for column, value in only.items())
        without = sorted(set(self.runs) - set(rows["run"]))
        return [f"left out, for they have no {what}{restricted}: {join_names(without)}"] if without else []

    def rows(self, file: str) -> list[Row]:
        """The rows of a file for all runs, under the runs' names. A row that several folders have is taken once."""
        table, found = results.KEPT[file], []
        for name, parts in self.runs.items():
            taken: set[tuple[Any, ...]] = set()
            for part in parts:
                rows = part.tables[file].to_pylist() if file in part.tables else []
                new = [row for row in rows if _key(row, table) not in taken]
                taken |= {_key(row, table) for row in new}
                found += [row | {"run": name} for row in new]
        return found


def _key(row: Row, table: Table) -> tuple[Any, ...]:
    """What a row of one run replaces others by."""
    return tuple(row[name] for name in table.key)


def _of_run(rows: pa.Table, name: str) -> pa.Table:
    return rows.filter(pc.equal(rows["run"].cast(pa.string()), name))


def _tables(folder: Path) -> dict[str, pa.Table]:
    """The tables in a folder. Raises UserError if one is damaged.

    Of a run, only the rows of weights that are there, and none if there are none of the last ones.
    """
    if (folder / RUN_FILE).exists():
        weights = kept.weights_in(folder)
        if weights is not None and not (weights and kept.folder_of(folder, weights[0]).is_dir()):
            return {}
        every = {file: kept.read_kept(folder, table, weights) for file, table in results.KEPT.items()}
        return {file: rows for file, rows in every.items() if rows is not None}
    return {
        file: results.read_columns(path, table)
        for file, table in results.KEPT.items()
        if (path := folder / file).exists()
    }


def _parts(folder: Path, tables: Mapping[str, pa.Table]) -> Iterator[RunTables]:
    """The runs that have rows in a folder."""
    if (folder / RUN_FILE).exists():
        if tables:
            yield RunTables(folder, folder.name, True, tables)
        return
    for name in dict.fromkeys(name for rows in tables.values() for name in rows["run"].unique().to_pylist()):
        group = {file: _of_run(rows, name) for file, rows in tables.items()}
        yield RunTables(folder, name, False, {file: rows for file, rows in group.items() if len(rows)})


def _run(part: RunTables) -> Trained:
    """The run that the rows of a part are of. Raises UserError if they are of several trainings."""
    run = run_of(set().union(*map(trained, part.tables.values())))
    if run is None:
        raise UserError(
            f"{part.folder} holds results of several trainings"
            + (
                f": delete those in {RESULTS}/ that are not of its weights, which are not in the folder"
                if part.own
                else f" as one run, {part.name}: make it again from the runs, or leave it out"
            )
        )
    return run


def called(rows: pa.Table, name: str) -> pa.Table:
    """The rows, with this name for their run."""
    return rows.set_column(rows.column_names.index("run"), "run", pa.repeat(name, len(rows)).dictionary_encode())


def load_tables(paths: Sequence[Path]) -> LoadedTables:
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
            if (folder / RUN_FILE).exists():
                (inside if (folder / RESULTS).is_dir() else unevaluated).append(folder)
            elif not any((folder / name).exists() for name in results.KEPT):
                continue
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
        left_out += [f"left out, for {why}: {join_names(folders)}"] if folders else []
    parts = [part for folder in found for part in _parts(folder, _tables(folder))]
    stale = [folder for folder in found if (folder / RUN_FILE).exists() and _has_others(folder)]
    without = [folder for folder in found if folder not in {part.folder for part in parts}]
    if gone := [folder for folder in without if folder in stale]:
        if not parts:
            raise UserError(f"{join_names(gone)}: no result is of the weights that are there now; evaluate again")
        left_out.append(f"left out, for no result is of the weights that are there now: {join_names(gone)}")
    if begun := [folder for folder in without if folder not in stale]:
        if not parts:
            raise UserError(f"{join_names(begun)}: the evaluation was stopped before its first result; evaluate again")
        left_out.append(f"left out, for their evaluation was stopped before its first result: {join_names(begun)}")
    if more := [folder for folder in stale if folder not in gone]:
        left_out.append(f"not read, for they are of weights that are gone: some results of {join_names(more)}")
    return _evaluated(parts, left_out)


def _has_others(run: Path) -> bool:
    """Whether a run keeps rows of weights that are not in its folder."""
    here = kept.weights_in(run)
    return here is not None and bool(kept.of_other_weights(run, here))


def _evaluated(found: Collection[RunTables], left_out: list[str]) -> LoadedTables:
    known = [(part, _run(part)) for part in found]
    if others := exchanged({part.folder: run for part, run in known if part.own}):
        left_out.append(
            "left out of the questions and published tables of their studies, for they are not the runs that the cells "
            f"ask for: {join_names(others)}"
        )
    runs: dict[Trained, list[RunTables]] = {}
    for part, run in known:
        runs.setdefault(run, []).append(part)
    for parts in runs.values():
        parts.sort(key=lambda part: not part.own)  # the name is that of the run's own folder
        if again := [part.folder for part in parts[1:] if part.own]:
            left_out.append(f"taken once, for they hold the run {parts[0].folder} too: {join_names(again)}")
    named = disambiguate({run: parts[0].place for run, parts in runs.items()})
    names = {part.folder: named[run] for run, parts in runs.items() for part in parts if part.place[0] != part.folder}
    return LoadedTables(names, tuple(left_out), {named[run]: parts for run, parts in runs.items()}, others)
