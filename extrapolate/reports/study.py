"""What a study's folder says about its cells: which were asked for, which failed, and the encoding of each."""

import json
from pathlib import Path

import pyarrow as pa

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.names import ASKED, RUNS, STATES

Identity = tuple[str, str]  # an encoding's name, and its arguments as JSON


def cells_of(study: Path) -> dict[str, Identity]:
    """The encoding of each cell that the last sweep was asked for, by name; empty if the folder holds no study."""
    if not (study / ASKED).is_file():
        return {}
    match files.read_json(study / ASKED):
        case {"cells": dict(cells)} if all(type(cell) is dict for cell in cells.values()):
            return {
                name: (str(cell.get("encoding")), json.dumps(cell.get("arguments"))) for name, cell in cells.items()
            }
    return {}


def without_run(path: Path) -> tuple[list[Path], dict[Path, str]]:
    """The runs that studies at a path, or directly below it, have not begun; and those that failed, with the reason."""
    unbegun: list[Path] = []
    failed: dict[Path, str] = {}
    studies = [path, *([path.parent] if path.name == RUNS else []), *(file.parent for file in path.glob(f"*/{ASKED}"))]
    for study in studies:
        for name in cells_of(study):
            run = study / RUNS / name
            if reason := _failure(study / STATES / f"{name}.json"):
                failed[run] = reason
            elif not run.exists():
                unbegun.append(run)
    return unbegun, failed


def _failure(state: Path) -> str | None:
    try:
        known = files.read_json(state) if state.is_file() else {}
    except UserError:  # it is damaged, which `sweep` and `status` report
        return None
    return (known.get("failed") or known.get("diverged")) if isinstance(known, dict) else None


def is_exchanged(run: Path, *tables: pa.Table) -> bool:
    """Whether a cell's folder holds a run, with rows in these tables, of another encoding than the cell's."""
    asked = cells_of(run.parent.parent).get(run.name) if run.parent.name == RUNS else None
    held = [row for rows in tables for row in rows.slice(0, 1).select(["encoding", "encoding_arguments"]).to_pylist()]
    return asked is not None and any(tuple(row.values()) != asked for row in held)
