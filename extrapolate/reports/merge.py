"""Merges the rows of several people into one folder, if they can be compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import files, results
from extrapolate.errors import UserError
from extrapolate.folders import listed
from extrapolate.names import AS_TRAINED, PROBES_TABLE, TASKS_TABLE
from extrapolate.reports.gather import DOCUMENTS, TEXT, Row, gather, sources_of
from extrapolate.reports.sections import learning_rates
from extrapolate.statistics.comparable import (
    COMPARABLE,
    check_replicates,
    last_checkpoints,
    told_apart,
    unequal_training,
)
from extrapolate.statistics.documents import belonging, without_positions

_WHO = ["run", "model", "seed", "training_commit", "training_machine", "commit", "machine", "evaluated_at"]
# For tables whose rows are compared across runs: the columns that must be equal for rows to score the same targets,
# and the settings that choose the targets.
_COMPARED = {
    TEXT: (["protocol"], "`factors` and `max_targets`"),
    PROBES_TABLE: (["probe", "factor", "depth"], "`trials`"),
    TASKS_TABLE: (["task", "metric", "filter", "shots"], "`limit`, on one edition of the task"),
}


@dataclass(frozen=True)
class Merged:
    """The result of a merge.

    folder: where the rows are. files: the names of the files. runs: a row for each run as it was trained, with the
    folder that it came from (`source`) and what made it. warnings: what else a reader should know.
    """

    folder: Path
    files: Sequence[str]
    runs: pd.DataFrame
    warnings: Sequence[str]


def merge_rows(paths: Sequence[Path], out: Path, only: Mapping[str, Any], *, totals: bool = False) -> Merged:
    """Merges the rows of evaluated runs and of reports, at and below some folders, into the new folder `out`.

    `only` restricts rows: column -> value. With `totals`, each document's losses are summed over positions. Runs with
    the same name but different weights are prefixed with the names of their folders. Raises UserError, which says whose
    rows differ, if rows cannot be compared, or if `out` exists.
    """
    found = gather(paths, reports=True)
    made = {file: [row for row in found.rows(file) if _is(row, only)] for file in results.KEPT}
    made = {file: rows for file, rows in made.items() if rows}
    if not made:
        raise UserError(f"no row has {', '.join(f'{column} {value}' for column, value in only.items())}")
    folders = sources_of([part.folder for parts in found.runs.values() for part in parts])
    sources = {name: folders[parts[0].folder] for name, parts in found.runs.items()}
    warnings = [text for file in made for text in _checked(_frame(made[file]), sources, file)]
    documents = found.documents()
    if only:
        documents = belonging(documents, made.get(TEXT, []), results.EVALS.key)
    every = pd.concat([_frame(made[file]) for file in made], ignore_index=True)
    check_replicates(told_apart(every))
    rates = learning_rates.tables_of(found, set(every["run"]))
    with files.new_folder(out) as folder:
        for file, mine in made.items():
            results.write(folder / file, mine, results.KEPT[file])
        if len(documents):
            kept = without_positions(documents) if totals else documents
            results.write_columns(folder / DOCUMENTS, kept, results.EVAL_DOCUMENTS)
        if rates:
            results.write_frame(folder / learning_rates.FILE, pd.concat(rates, ignore_index=True))
    as_trained_first = every.sort_values("extension", key=lambda extension: extension != AS_TRAINED, kind="stable")
    who = as_trained_first.drop_duplicates("run")[_WHO].sort_index(ignore_index=True)
    who.insert(1, "source", who["run"].map(sources))
    written = [*made, *([DOCUMENTS] if len(documents) else []), *([learning_rates.FILE] if rates else [])]
    return Merged(out, written, who, [*found.left_out, *found.unseen(every, "row", only), *dict.fromkeys(warnings)])


def _is(row: Row, only: Mapping[str, Any]) -> bool:
    return all(str(row.get(column, value)) == str(value) for column, value in only.items())


def _frame(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows).astype({"tokens": "Int64", "seed": "Int64"})
    return frame.astype({"loss": float}) if "loss" in frame else frame


def _checked(rows: pd.DataFrame, sources: Mapping[str, str], file: str) -> Iterator[str]:
    """Warnings about rows that can be compared. Raises UserError, which says whose rows differ, if they cannot."""
    if file not in _COMPARED:
        return
    (place, settings), from_ = _COMPARED[file], rows["run"].map(sources)
    for column in COMPARABLE:
        if column in rows and rows[column].nunique() > 1:
            parameter = {"corpus_hash": "corpus"}.get(column, column)
            raise UserError(
                f"the rows differ in {column}, and their losses cannot be compared: {_whose(rows[column], from_)}. "
                f"Choose with `{parameter}`, or leave out a folder"
            )
    for where, mine in rows.groupby(place):
        if mine["targets_hash"].nunique() > 1:
            raise UserError(
                f"the rows of {where[0]} score different targets, and cannot be compared: "
                f"{_whose(mine['targets_hash'], from_)}. Evaluate every run with the same {settings}"
            )
    yield from unequal_training(last_checkpoints(rows))
    for column in ("version", "commit"):
        if rows[column].nunique() > 1:
            yield f"the rows were evaluated by several {column}s of extrapolate: {_whose(rows[column], from_)}"


def _whose(values: "pd.Series[Any]", sources: "pd.Series[Any]") -> str:
    """`a1 in alice; b2 in bob, carol`."""
    own = sources.loc[values.index]
    return "; ".join(
        f"{value or 'unknown'} in {listed(sorted(set(own[values == value])))}" for value in sorted(set(values))
    )
