"""Keeps the rows in a run's folder to those of its present training and weights."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from extrapolate import files, results
from extrapolate.errors import UserError
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.plans import parsed, users_files
from extrapolate.folders import listed
from extrapolate.names import DOCUMENTS_TABLE, TARGETS_TABLE, TEXT_TABLE
from extrapolate.progress import Say
from extrapolate.results.identity import Trained, own_versions, trained
from extrapolate.runs.config import training_of
from extrapolate.runs.run import Run

Row = dict[str, Any]
_VERSION = ["extension", "extension_sha256"]
_KEY = [name for name in results.EVALS.key if name != "run"]


@contextlib.contextmanager
def keeping_rows(run: AnyRun, extensions: Sequence[str], others: Sequence[str], say: Say) -> Iterator[None]:
    """Locks a run's folder for an evaluation with extensions.

    Drops the rows of an earlier training in the folder, or of another version of an extension's file, from all its
    tables, and says so. The rows that stay take the folder's present name. others: extensions that are asked for too,
    but do not apply to the run: an earlier version of their files may have. Raises InUse if another process writes
    there.
    """
    with files.locked(run.path):
        files.remove_partials(run.path)
        if isinstance(run, Run):
            run.keep_extensions(users_files(extensions))
        asked = [one for one in map(parsed, (*extensions, *others)) if one is not None]
        _keep_own(run, {own: now for one in asked for own, now in own_versions(one.text, one.sha256()).items()}, say)
        yield


def _keep_own(run: AnyRun, versions: Mapping[str, str], say: Say) -> None:
    """versions: the hashes of extensions' files, as `own_versions` gives them."""
    tables = {run.path / file: table for file, table in results.KEPT.items() if (run.path / file).exists()}
    found = {path: results.read_columns(path, table) for path, table in tables.items()}
    left = {path: trained(rows) for path, rows in found.items()}
    others = _of_others(run, set().union(*left.values()))

    def edited_files(row: Row) -> set[str]:
        found = own_versions(row["extension"], row["extension_sha256"])
        return {name for name, version in found.items() if versions.get(name, version) != version}

    def own(row: Row) -> Row | None:
        dropped = edited_files(row) or Trained(*(row[name] for name in Trained._fields)) in others
        return None if dropped else row | {"run": run.name}

    edited = {path: set().union(*map(edited_files, rows.select(_VERSION).to_pylist())) for path, rows in found.items()}
    for path, table in tables.items():
        if not edited[path] and left[path].isdisjoint(others) and found[path]["run"].unique().to_pylist() == [run.name]:
            continue
        # Drops what belongs to rows before the rows: if this is interrupted, the next evaluation drops the rows.
        if path.name == TEXT_TABLE and (targets := path.with_name(TARGETS_TABLE)).exists():
            gone = [row for row in found[path].to_pylist() if own(row) is None]
            results.merge_columns(
                targets, results.EVAL_TARGETS.schema().empty_table(), results.EVAL_TARGETS, gone, run.name
            )
        if path.name == TEXT_TABLE and (documents := path.with_name(DOCUMENTS_TABLE)).exists():
            kept = {tuple(row[name] for name in _KEY) for row in map(own, found[path].to_pylist()) if row is not None}

            def with_losses(row: Row, kept: set[tuple[Any, ...]] = kept) -> Row | None:
                return row | {"run": run.name} if tuple(row[name] for name in _KEY) in kept else None

            results.change(documents, results.EVAL_DOCUMENTS, with_losses)
        results.change(path, table, own)
    if dropped := [path.name for path in tables if not left[path].isdisjoint(others)]:
        say(f"{run.path}: dropped results of an earlier training in this folder, from {listed(dropped)}")
    if any(edited.values()):
        names = listed([path.name for path in tables if edited[path]])
        which = listed(sorted(set().union(*edited.values())))
        say(f"{run.path}: dropped results of another version of {which}, from {names}")


def _of_others(run: AnyRun, left: set[Trained]) -> set[Trained]:
    """The checkpoints among those of the rows that belong to an earlier training.

    Rows of steps whose weights are gone count as this training's if there are also rows of its last weights, and none
    of others: the evaluation that wrote rows of these weights has dropped all others.
    """
    training = training_of(run.config)
    try:
        weights = run.checkpoints("all")
    except UserError:  # one of those along the way is damaged
        weights = run.checkpoints("last")
    here = {Trained(*training, one.step, one.sha256) for one in weights}
    last, steps = max(here, key=lambda one: one.step), {one.step for one in here}
    mine = {one for one in left - here if one[:2] == training and one.step not in steps}
    return set() if mine == left - here and last in left else left - here
