"""One task of a study, in a process of its own."""

import contextlib
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from extrapolate.errors import reason_of
from extrapolate.machine.children import reply
from extrapolate.machine.interrupts import Interrupted
from extrapolate.progress import QUIET, Display, Progress, Quiet, Say
from extrapolate.runs import trust
from extrapolate.studies import state
from extrapolate.studies.cores import take
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.state import CellState
from extrapolate.studies.tasks import Ended, Task

EVERY_S = 0.2  # between two messages on progress


# The arguments of `perform`, but for the last two.
Work = tuple[Task, Resolved, Path, Path | None, bool]


def perform(
    task: Task, cell: Resolved, folder: Path, parent: Path | None, alone: bool, progress: Progress, warn: Say
) -> str | None:
    """Trains or evaluates a cell of the study in `folder`; what is done already is not done again.

    parent: the run that the cell continues; alone: nothing else runs beside, so that times are kept; warn: called with
    what the user should know when it is done. Returns why the training diverged, None if it did not. Raises what
    `train` and `evaluate` raise; UserError if one of the study's Python files has changed in the meantime.
    """
    from extrapolate.api.evaluating import evaluate_with
    from extrapolate.api.training import train_with
    from extrapolate.training.loop import NotFinite

    with trust.only(cell.code):
        if task.kind == "train":
            state.write(folder, cell.name, CellState())
            try:
                train_with(
                    cell.request, data=cell.data, out=cell.path, resume=True, save_every=None,
                    keep_every=cell.cell.settings.get("keep_every"), start=parent, extend=cell.cell.extend, timed=alone,
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


def perform_all(works: Sequence[Work]) -> Ended:
    """Does the tasks of one cell one after the other, as far as they succeed, without progress."""
    warnings: list[str] = []
    for done, work in enumerate(works):
        try:
            diverged = perform(*work, progress=QUIET, warn=warnings.append)
        except Interrupted:
            raise
        except Exception as error:
            return Ended(done, failed=reason_of(error), warnings=tuple(warnings))
        if diverged is not None:
            return Ended(done, diverged=diverged, warnings=tuple(warnings))
    return Ended(len(works), warnings=tuple(warnings))


class Reporter(Quiet):
    """Progress that is sent to the process that started this one: the share of the task that is done, 0 to 1."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self.tell, self.last = tell, 0.0

    def display(self, unit: str, stopped: str = "stopped") -> Display:
        """A piece of work begins."""
        self.last = 0.0
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        """Sends the share of it that is done, not too often."""
        if time.monotonic() - self.last >= EVERY_S or done == total:
            self.last = time.monotonic()
            self.tell(done / total if total else 0.0)


def serve(connection: Connection) -> None:
    """Does one task after the other, as it is sent them, and answers with how far each is, then with how it ended."""
    take(connection.recv())
    with contextlib.suppress(KeyboardInterrupt, Interrupted):  # the process that stopped it knows
        while True:
            task, cell, folder, parent, alone = connection.recv()
            reporter = Reporter(lambda share: reply(connection, share))
            warnings: list[str] = []
            diverged = perform(task, cell, folder, parent, alone, reporter, warnings.append)
            gc.collect()  # models refer to themselves, and another one comes
            reply(connection, Ended(int(diverged is None), diverged=diverged, warnings=tuple(warnings)))
