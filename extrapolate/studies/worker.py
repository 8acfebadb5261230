"""One task of a study, in a process with its share of the machine's cores."""

import contextlib
import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from extrapolate.errors import UserError, reason_of
from extrapolate.machine.children import reply
from extrapolate.machine.distributed import work_alone
from extrapolate.machine.interrupts import Interrupted
from extrapolate.machine.limits import cores
from extrapolate.progress import SILENT, Display, Progress, Quiet, Say
from extrapolate.runs import trust
from extrapolate.studies import state
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.state import CellState
from extrapolate.studies.tasks import Ended, Task

EVERY_S = 0.2  # between two messages on progress
# The arguments of `perform`, without the last two.
Assignment = tuple[Task, Resolved, Path, Path | None, bool]


@dataclass(frozen=True)
class Share:
    """The cores of one of several jobs, () if the system has no affinity, and its number of threads."""

    cores: tuple[int, ...]
    threads: int

    def environment(self) -> dict[str, str]:
        """The environment variables for its process."""
        return {"OMP_NUM_THREADS": str(self.threads)}


def core_shares(jobs: int) -> list[Share]:
    """The share of each job. Raises UserError if there are more jobs than cores, or none."""
    if jobs < 1:
        raise UserError(f"`jobs` must be at least 1, not {jobs}")
    if jobs > cores():
        raise UserError(f"`jobs={jobs}` is more than the {cores()} cores of this process")
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [Share(tuple(mine[slot::jobs]), len(range(slot, cores(), jobs))) for slot in range(jobs)]


def take(share: Share) -> None:
    """Limits this process to its share. Call it before anything is computed."""
    if share.cores:
        os.sched_setaffinity(0, share.cores)
    import torch

    torch.set_num_threads(share.threads)


def perform(
    task: Task, cell: Resolved, folder: Path, parent: Path | None, alone: bool, progress: Progress, warn: Say
) -> str | None:
    """Trains or evaluates a cell of the study in `folder`, without repeating finished work.

    parent: the run that the cell continues. alone: nothing else runs at the same time, so times are kept. warn: called
    with what the user should know. Returns why the training diverged, or None. Raises what `train` and `evaluate`
    raise, and UserError if one of the study's Python files has changed since it was checked.
    """
    from extrapolate.api.evaluating import evaluate_with
    from extrapolate.api.training import train_with
    from extrapolate.training.loop import NotFinite

    with trust.only(cell.code):
        if task.kind == "train":
            state.write(folder, cell.name, CellState())
            try:
                train_with(
                    replace(cell.request, start=parent), cell.data, cell.path, True, timed=alone,
                    tracking=replace(cell.tracking, warn=warn), progress=progress,
                )  # fmt: skip
            except NotFinite as error:
                reason = str(error).replace(f" of {cell.path}", "")
                state.write(folder, cell.name, CellState(diverged=reason, settings=state.settings_key(cell.config)))
                return reason
            return None
        evaluate_with(cell.evaluation, cell.path, data=cell.data, timed=alone, progress=progress)
        key = state.evaluation_key(cell.path, cell.evaluation)
        state.write(folder, cell.name, CellState(evaluated=key))
        return None


def perform_all(assignments: Sequence[Assignment]) -> Ended:
    """Does the tasks of one cell in turn, without progress, until one fails."""
    work_alone()
    warnings: list[str] = []
    for done, assignment in enumerate(assignments):
        try:
            diverged = perform(*assignment, progress=SILENT, warn=warnings.append)
        except Interrupted:
            raise
        except Exception as error:
            return Ended(done, failed=reason_of(error), warnings=tuple(warnings))
        if diverged is not None:
            return Ended(done, diverged=diverged, warnings=tuple(warnings))
    return Ended(len(assignments), warnings=tuple(warnings))


class Reporter(Quiet):
    """Sends progress to the process that started this one: the share of the task that is done, 0 to 1."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self.tell, self.last = tell, 0.0

    def display(self, unit: str, stopped: str = "stopped") -> Display:
        """Starts a piece of work."""
        self.last = 0.0
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        """Sends the share that is done, at most every EVERY_S seconds."""
        if time.monotonic() - self.last >= EVERY_S or done == total:
            self.last = time.monotonic()
            self.tell(done / total if total else 0.0)


def serve(connection: Connection) -> None:
    """Does the tasks that it receives, one after the other, and replies with the progress of each, then its end."""
    take(connection.recv())
    with contextlib.suppress(KeyboardInterrupt, Interrupted):  # the process that stopped it knows
        while True:
            task, cell, folder, parent, alone = connection.recv()
            reporter = Reporter(lambda share: reply(connection, share))
            warnings: list[str] = []
            diverged = perform(task, cell, folder, parent, alone, reporter, warnings.append)
            gc.collect()  # frees the model, which refers to itself, before the next one
            reply(connection, Ended(int(diverged is None), diverged=diverged, warnings=tuple(warnings)))
