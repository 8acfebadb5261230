"""How far a study is, read from its folder alone, in which another process may be at work."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.folders import LOG, RESULTS, WEIGHTS
from extrapolate.names import ASKED, RUNS
from extrapolate.reports.study import Training
from extrapolate.reports.study import cells_of as trainings_asked
from extrapolate.runs.config import training_of
from extrapolate.runs.run import CONFIG, Run
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.specs import arguments
from extrapolate.studies import state
from extrapolate.studies.cells import Cell, cells_of
from extrapolate.studies.study import read_study

STUDY = "study.toml"
Doing = Literal["done", "running", "failed", "diverged", "passed over", "trained", "begun", "left"]


@dataclass(frozen=True)
class CellStatus:
    """A cell: its status, the tokens trained on, out of how many (None if unknown), its last losses, nats, and why it
    failed or diverged."""

    cell: str
    status: Doing
    tokens: int
    of: int | None
    loss: float | None
    val_loss: float | None
    reason: str | None


def status(folder: str | Path) -> pd.DataFrame:
    """Returns how far each cell of a study is, even while another process works on it.

    folder: the study's folder, as `sweep` makes it. The rows have the cell, its status, the tokens trained on and to
    train on, its last losses in nats, and why it failed. The status is `done`; `running`; `failed`; `diverged` (the
    loss became infinite, so it is not retried); `passed over` (another learning rate was better); `trained` but not
    evaluated yet; `begun` and stopped; or `left`.

    Raises UserError if the folder holds no study.
    """
    return pd.DataFrame([asdict(one) for one in status_of(arguments.path("folder", folder))])


def status_of(folder: Path) -> list[CellStatus]:
    """Every cell of the study in a folder, in the order of its file.

    Raises UserError if there is no study.
    """
    if not (folder / STUDY).is_file():
        raise UserError(f"{folder} holds no study: it has no {STUDY}")
    cells = cells_of(read_study(folder / STUDY, *_asked(folder / ASKED)))
    asked = trainings_asked(folder)
    return [_status(folder, cell, asked.get(cell.name)) for cell in cells]


def _asked(path: Path) -> tuple[str | None, list[str]]:
    """The scale and the encodings that the sweep was called with."""
    if not path.is_file():
        return None, []
    match files.read_json(path):
        case {"scale": str() | None as scale, "encodings": list(encodings)} if all(type(x) is str for x in encodings):
            return scale, encodings
    raise UserError(f"{path} is damaged: run the same sweep again, which writes it")


def _status(folder: Path, cell: Cell, asked: Training | None) -> CellStatus:
    run = folder / RUNS / cell.name
    known = state.read(folder, cell.name)
    last: dict[str, float] = {}
    for row in _rows(run / LOG):
        last.update(row)
    trained = (run / WEIGHTS).is_file()
    other = "its folder holds a run with other settings or another seed" if _is_other(run, asked) else None
    statuses: dict[Doing, bool] = {
        "running": state.held(run),
        "failed": known.failed is not None or other is not None,
        "diverged": known.diverged is not None,
        "passed over": known.passed_over,
        "done": trained and known.evaluated is not None and (run / RESULTS).is_dir(),
        "trained": trained,
        "begun": bool(last),
        "left": True,
    }
    doing = next(name for name, holds in statuses.items() if holds)
    return CellStatus(
        cell.name, doing, int(last.get("tokens", 0)), tokens_due(run), last.get("loss"), last.get("val_loss"),
        other or known.failed or known.diverged,
    )  # fmt: skip


def _is_other(run: Path, asked: Training | None) -> bool:
    """Whether a folder holds a run of another training; False if the run does not exist or is damaged."""
    try:
        return asked is not None and training_of(Run.open(run).config) != asked
    except UserError:
        return False


def _rows(log: Path) -> Iterator[dict[str, float]]:
    if not log.is_file():
        return
    for line in log.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # a line that is still being written, or is damaged
            return
        if isinstance(row, dict):
            yield row


def tokens_due(run: Path) -> int | None:
    """The tokens at the end of a run's training, which has whole batches; None if that is not known."""
    try:
        training = TrainingConfig(**files.read_json(run / CONFIG)["config"]["training"])
    except (ValueError, KeyError, TypeError, OSError):  # missing or damaged, which is reported elsewhere
        return None
    return training.steps * training.batch_size * training.seq_len
