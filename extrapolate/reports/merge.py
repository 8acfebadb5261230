"""Rows of several people in one folder, if they can be compared."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from extrapolate import files, results
from extrapolate.errors import UserError
from extrapolate.evaluation.names import AS_TRAINED, INSPECTIONS_TABLE, PROBES_TABLE, TASKS_TABLE
from extrapolate.folders import listed
from extrapolate.reports import tables
from extrapolate.reports.documents import as_frame, numbered
from extrapolate.reports.gather import DOCUMENTS, TEXT, called, gather, table_in
from extrapolate.results.columns import Table

Row = dict[str, Any]
Rows = dict[str, list[Row]]  # by file
_WHO = ["run", "model", "seed", "training_commit", "training_machine", "commit", "machine", "evaluated_at"]


@dataclass(frozen=True)
class _Kind:
    """What is known of a table that is merged. value: the column in which rows of one key must agree.

    place: rows that are equal in these columns must score the same targets, which `settings` decide. Without a place
    nobody compares rows of one run with those of another.
    """

    table: Table
    value: str
    place: tuple[str, ...] = ()
    settings: str = ""


_KINDS = {
    TEXT: _Kind(results.EVALS, "loss", ("protocol",), "`factors` and `max_targets`"),
    PROBES_TABLE: _Kind(results.PROBES, "loss", ("probe", "factor", "depth"), "`trials`"),
    TASKS_TABLE: _Kind(
        results.TASKS, "value", ("task", "metric", "filter", "shots"), "`limit`, on one edition of the task"
    ),
    INSPECTIONS_TABLE: _Kind(results.INSPECTIONS, "value"),
}


@dataclass(frozen=True)
class Merged:
    """Rows that were put together.

    folder: where they are. files: their names. runs: a row for each run as it was trained, with the folder that it
    came from (`source`), and who made it. warnings: what else a reader should know.
    """

    folder: Path
    files: Sequence[str]
    runs: pd.DataFrame
    warnings: Sequence[str]


@dataclass
class _Run:
    """One run. source: the first folder that holds rows of it; weights: their hash, by step; rows: by file and key;
    documents: the rows of documents, as columns, from each folder.
    """

    source: str
    weights: dict[int, str]
    rows: dict[str, dict[tuple[Any, ...], Row]] = field(default_factory=lambda: {file: {} for file in _KINDS})
    documents: list[pa.Table] = field(default_factory=list)

    def has(self, weights: Mapping[int, str]) -> bool:
        """Whether rows with these weights are of this run: they share a checkpoint, and differ in none."""
        both = self.weights.keys() & weights.keys()
        return bool(both) and all(self.weights[step] == weights[step] for step in both)

    def named(self, name: str) -> str:
        """Its name where other runs have that name too: the folder tells it from them."""
        return self.source if Path(self.source).name == name else f"{self.source}/{name}"

    def add(self, rows: Rows, documents: "_Documents", weights: Mapping[int, str], source: str) -> None:
        """Adds rows. Those that are there already must say the same; else it raises UserError."""
        self.weights |= weights
        taken = set()
        for file, kind in _KINDS.items():
            for row in rows[file]:
                key = tuple(row[name] for name in kind.table.key)
                before = self.rows[file].setdefault(key, row)
                if before is row:
                    taken.add(key)
                elif str(before[kind.value]) != str(row[kind.value]):  # NaN is like NaN
                    raise UserError(
                        f"{self.source} and {source} differ in {file} for the same weights, {row['run']}: the "
                        f"{kind.value} of {row['model']} at {row['factor']:g}x is {before[kind.value]} and "
                        f"{row[kind.value]}. Leave out one"
                    )
        self.documents.append(documents.of(taken))


class _Documents:
    """The rows of documents in a folder, as columns; none where it has no losses on text."""

    def __init__(self, folder: Path) -> None:
        has = (folder / TEXT).exists()  # a report needs the documents
        table = results.EVAL_DOCUMENTS
        self._rows = results.read_columns(folder / DOCUMENTS, table) if has else table.schema().empty_table()
        self._group, keys = numbered(as_frame(self._rows), list(results.EVALS.key))
        self._groups = {tuple(key): group for *key, group in keys.itertuples(index=False, name=None)}

    def of(self, keys: Collection[tuple[Any, ...]]) -> pa.Table:
        """Those that belong to rows of losses with these keys."""
        return self._rows.filter(pa.array(self._group.isin([self._groups[key] for key in keys if key in self._groups])))


def merge_rows(paths: Sequence[Path], out: Path, only: Mapping[str, Any]) -> Merged:
    """Puts the rows of evaluated runs and of reports, at and below some folders, into the new folder `out`.

    `only` restricts rows: column -> value. Runs of one name with different weights get the names of their folders
    before their own. Raises UserError where rows cannot be compared, and says whose, or `out` is there already.
    """
    found = gather(paths, reports=True)
    runs: dict[str, list[_Run]] = {}
    for folder, source in _sources(list(found.names)).items():
        documents = _Documents(folder)
        for name, rows in _read(folder, only).items():
            weights = {row["step"]: row["weights_sha256"] for mine in rows.values() for row in mine}
            same = next((run for run in runs.get(name, []) if run.has(weights)), None)
            if same is None:
                same = _Run(source, {})
                runs.setdefault(name, []).append(same)
            same.add(rows, documents, weights, source)
    named = [(name if len(same) == 1 else run.named(name), run) for name, same in runs.items() for run in same]
    made = {file: [row | {"run": name} for name, run in named for row in run.rows[file].values()] for file in _KINDS}
    made = {file: rows for file, rows in made.items() if rows}
    if not made:
        raise UserError(f"no row has {', '.join(f'{column} {value}' for column, value in only.items())}")
    sources = {name: run.source for name, run in named}
    warnings = [text for file in made for text in _checked(_frame(made[file]), sources, file)]
    documents = pa.concat_tables([called(rows, name) for name, run in named for rows in run.documents])
    with files.new_folder(out) as folder:
        for file, mine in made.items():
            results.write(folder / file, mine, _KINDS[file].table)
        if len(documents):
            results.write_columns(folder / DOCUMENTS, documents, results.EVAL_DOCUMENTS)
    every = pd.concat([_frame(made[file]) for file in made], ignore_index=True)
    as_trained_first = every.sort_values("extension", key=lambda extension: extension != AS_TRAINED, kind="stable")
    who = as_trained_first.drop_duplicates("run")[_WHO].sort_index(ignore_index=True)
    who.insert(1, "source", who["run"].map(sources))
    written = [*made, *([DOCUMENTS] if len(documents) else [])]
    return Merged(out, written, who, [*found.left_out, *dict.fromkeys(warnings)])


def _sources(folders: Sequence[Path]) -> dict[Path, str]:
    """What folders are called: their paths from the folder that they are all in."""
    common = Path(os.path.commonpath([folder.parent for folder in folders]))
    return {folder: folder.relative_to(common).as_posix() for folder in folders}


def _read(folder: Path, only: Mapping[str, Any]) -> dict[str, Rows]:
    """The rows in a folder, by run."""
    by_run: dict[str, Rows] = {}
    for file, kind in _KINDS.items():
        path = table_in(folder, file)
        for row in [] if path is None else results.read(path, kind.table):
            if all(str(row.get(column, value)) == str(value) for column, value in only.items()):
                by_run.setdefault(row["run"], {file: [] for file in _KINDS})[file].append(row)
    return by_run


def _frame(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows).astype({"tokens": "Int64", "seed": "Int64"})
    return frame.astype({"loss": float}) if "loss" in frame else frame


def _checked(rows: pd.DataFrame, sources: Mapping[str, str], file: str) -> Iterator[str]:
    """Warnings on rows that can be compared. Raises UserError where they cannot, and says whose rows differ."""
    kind, from_ = _KINDS[file], rows["run"].map(sources)
    if not kind.place:
        return
    for column in tables.COMPARABLE:
        if column in rows and rows[column].nunique() > 1:
            parameter = {"corpus_hash": "corpus"}.get(column, column)
            raise UserError(
                f"the rows differ in {column}, and their losses cannot be compared: {_whose(rows[column], from_)}. "
                f"Choose with `{parameter}`, or leave out a folder"
            )
    place = list(kind.place)
    for where, mine in rows.groupby(place):
        if mine["targets_hash"].nunique() > 1:
            raise UserError(
                f"the rows of {where[0]} score different targets, and cannot be compared: "
                f"{_whose(mine['targets_hash'], from_)}. Evaluate every run with the same {kind.settings}"
            )
    last = tables.last_checkpoints(tables.told_apart(rows))
    for _, mine in last.groupby(place):
        tables.check_replicates(mine)
    yield from tables.unequal_training(last)
    for column in ("version", "commit"):
        if rows[column].nunique() > 1:
            yield f"the rows were evaluated by several {column}s of extrapolate: {_whose(rows[column], from_)}"


def _whose(values: "pd.Series[Any]", sources: "pd.Series[Any]") -> str:
    """`a1 in alice; b2 in bob, carol`."""
    own = sources.loc[values.index]
    return "; ".join(
        f"{value or 'unknown'} in {listed(sorted(set(own[values == value])))}" for value in sorted(set(values))
    )
