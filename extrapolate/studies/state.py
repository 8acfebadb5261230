"""A study's folder: the state of each cell, from which a killed study continues, and who is at work there."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.evaluation.plans import users_files
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.names import STATES
from extrapolate.results import EVAL_DOCUMENTS, EVALS, PROBES, kept
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import CONFIG, Run

SHARES = "array"  # the folder with a folder for each share under way


@dataclass(frozen=True)
class CellState:
    """evaluated: a hash of the weights and the evaluation that is complete. failed: why the cell's last task failed.
    passed_over: another learning rate was better, so nothing more is done. diverged: how a training with these
    `settings`, a hash, ended with a loss that is infinite or NaN."""

    evaluated: str | None = None
    failed: str | None = None
    passed_over: bool = False
    diverged: str | None = None
    settings: str | None = None


def read(folder: Path, name: str) -> CellState:
    """A cell's state in a study's folder."""
    path = folder / STATES / f"{name}.json"
    if not path.is_file():
        return CellState()
    try:
        return CellState(**files.read_json(path))
    except (TypeError, UserError):
        raise UserError(f"{path} is damaged: delete it; what the cell's run holds is kept") from None


def write(folder: Path, name: str, state: CellState) -> None:
    """Writes a cell's state, atomically."""
    (folder / STATES).mkdir(exist_ok=True)
    files.write_json(folder / STATES / f"{name}.json", asdict(state))


def trained(run: Path) -> bool:
    """Whether a run exists and is finished."""
    return (run / CONFIG).is_file() and Run.open(run).finished


def evaluation_key(run: Path, settings: EvaluationSettings) -> str | None:
    """A hash of a finished run's weights, the evaluation and the rows of it; None if a kind of rows is missing.

    It includes the content of the user's files and of the rows, so it differs for another evaluation of the run.
    """
    weights = [checkpoint.sha256 for checkpoint in Run.open(run).checkpoints(settings.checkpoint)]
    tables = ([EVALS, EVAL_DOCUMENTS] if settings.protocols else []) + ([PROBES] if settings.probes else [])
    kept_files = [sorted(kept.files_of(run, table, weights)) for table in tables]
    if not all(kept_files):
        return None
    used = [file.sha256 for file in users_files(settings.extend)]
    rows = [hashlib.sha256(path.read_bytes()).hexdigest() for paths in kept_files for path in paths]
    return _hash([weights, asdict(settings), used, rows])


def evaluated(folder: Path, name: str, run: Path, settings: EvaluationSettings) -> bool:
    """Whether a cell's finished run has been evaluated in this way, and its tables have not changed since."""
    known = read(folder, name).evaluated
    return known is not None and known == evaluation_key(run, settings)


def settings_key(config: TrainedConfig) -> str:
    """A hash of everything that determines the weights."""
    return _hash([config.decisive(), config.training.seed])


def diverged(folder: Path, name: str, config: TrainedConfig) -> str | None:
    """How a cell's training with these settings diverged, or None."""
    known = read(folder, name)
    return known.diverged if known.settings == settings_key(config) else None


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


@contextlib.contextmanager
def turn(folder: Path, share: int | None) -> Iterator[None]:
    """Locks the folder for a call on all cells, or on one share of them, by number. The lock ends with the process.

    Raises UserError, which names what is at work there, if another call is in the way.
    """
    with contextlib.ExitStack() as locks:
        try:
            locks.enter_context(files.locked(folder, shared=share is not None))
            if share is not None:
                locks.enter_context(files.locked(folder / SHARES / str(share)))
        except files.InUse:
            raise UserError(_at_work(folder, share)) from None
        yield


def _at_work(folder: Path, share: int | None) -> str:
    under_way = sorted(int(path.name) for path in (folder / SHARES).glob("[0-9]*") if held(path))
    if share is not None and share in under_way:
        return f"share {share} of {folder} is being done by another process already"
    if share is None and under_way:
        numbers = ", ".join(map(str, under_way))
        return f"shares of {folder} are being done with `array`: {numbers}; wait for them, and run this command again"
    return (
        f"another sweep is at work on all cells of {folder}: wait for it (extrapolate status {folder} shows how far it "
        "is), or choose another `out`"
    )


def held(folder: Path) -> bool:
    """Whether a process holds a folder's lock, from the kernel's table: trying the lock would get in others' way."""
    lock, table = folder / ".lock", Path("/proc/locks")
    if not lock.is_file() or not table.is_file():
        return False
    inode = f":{lock.stat().st_ino} "
    return any("FLOCK" in line and inode in line for line in table.read_text().splitlines())
