"""What is known of a cell on disk: its run, and a small file beside the runs. A killed study goes on from these."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.evaluation.plans import users_files
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.names import PROBES_TABLE, RUNS
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import CONFIG, Run

STATES = "state"


@dataclass(frozen=True)
class CellState:
    """evaluated: which evaluation of which weights is complete, None for none. failed: why the cell's last task failed,
    None if it did not. passed_over: another learning rate was better, so that nothing more is done. diverged: how a
    training with these settings, a hash, ended with a loss that is infinite, or no number."""

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
    except TypeError:
        raise UserError(f"{path} is damaged: delete it; what the cell's run holds is kept") from None


def write(folder: Path, name: str, state: CellState) -> None:
    """Writes it, atomically."""
    (folder / STATES).mkdir(exist_ok=True)
    files.write_json(folder / STATES / f"{name}.json", asdict(state))


def check_no_links(folder: Path) -> None:
    """Raises UserError if something in a study's folder, or one of its runs, is a link. The folder itself may be."""
    for path in (path for place in (folder, folder / RUNS) if place.is_dir() for path in sorted(place.iterdir())):
        files.check_no_link(path)


def trained(run: Path) -> bool:
    """Whether a run is there and finished."""
    return (run / CONFIG).is_file() and Run.open(run).finished


def evaluation_key(run: Path, settings: EvaluationSettings) -> str | None:
    """A hash of a finished run's weights, of how they are evaluated, and of the tables; None if a table is missing.

    The content of the user's files and of the tables counts, so another evaluation of the run is not taken for this.
    """
    names = ["evals.parquet", "eval_documents.parquet"] if settings.protocols else []
    if settings.probes:
        names.append(PROBES_TABLE)
    tables = [run / name for name in names]
    if not all(table.is_file() for table in tables):
        return None
    weights = [checkpoint.sha256 for checkpoint in Run.open(run).checkpoints(settings.checkpoint)]
    used = [file.sha256 for file in users_files(settings.extend)]
    return _hash(
        [weights, asdict(settings), used, [hashlib.sha256(table.read_bytes()).hexdigest() for table in tables]]
    )


def evaluated(folder: Path, name: str, run: Path, settings: EvaluationSettings) -> bool:
    """Whether a cell's finished run is evaluated so, and its tables are as they were then."""
    known = read(folder, name).evaluated
    return known is not None and known == evaluation_key(run, settings)


def settings_key(config: TrainedConfig) -> str:
    """A hash of all that decides the weights."""
    return _hash([config.decisive(), config.training.seed])


def diverged(folder: Path, name: str, config: TrainedConfig) -> str | None:
    """How a cell's training with these settings diverged; None if it did not."""
    known = read(folder, name)
    return known.diverged if known.settings == settings_key(config) else None


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
