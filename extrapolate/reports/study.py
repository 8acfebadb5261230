"""What a study's folder says about its cells: which were asked for, which failed, and the training of each."""

from collections.abc import Mapping
from pathlib import Path

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.folders import RUN_FILE, STATE, WEIGHTS
from extrapolate.names import ASKED, RUNS, STATES
from extrapolate.results.identity import Trained

Training = tuple[str, int | None]  # the first two fields of `Trained`


def cells_of(study: Path) -> dict[str, Training]:
    """The training of each cell that the last sweep was asked for, by name; empty if the folder holds no study."""
    if not (study / ASKED).is_file():
        return {}
    match files.read_json(study / ASKED):
        case {"cells": dict(cells)} if all(type(cell) is dict for cell in cells.values()):
            return {name: (str(cell.get("config_hash")), cell.get("seed")) for name, cell in cells.items()}
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
            elif not any((run / name).exists() for name in (RUN_FILE, WEIGHTS, STATE)):
                unbegun.append(run)
    return unbegun, failed


def _failure(state: Path) -> str | None:
    try:
        known = files.read_json(state) if state.is_file() else {}
    except UserError:  # it is damaged, which `sweep` and `status` report
        return None
    return (known.get("failed") or known.get("diverged")) if isinstance(known, dict) else None


def exchanged(runs: Mapping[Path, Trained]) -> list[Path]:
    """The cells' folders, of those of some runs, that hold a run of another training than the cell's."""
    studies = {run.parent.parent for run in runs if run.parent.name == RUNS}
    asked = {study / RUNS / name: cell for study in studies for name, cell in cells_of(study).items()}
    return [path for path, run in runs.items() if path in asked and run[:2] != asked[path]]
