"""The engine of one machine: several tasks at once, each in a process of its own with its share of the cores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path

from extrapolate.errors import UserError, reason_of
from extrapolate.machine.children import Child
from extrapolate.studies.cores import Share, core_shares
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.tasks import Task, Tasks
from extrapolate.studies.worker import Work, serve

LOOK_EVERY_S = 1.0


@dataclass
class Running:
    """A task under way. share: how much of it is done, 0 to 1, None until its process has said so. over: the process
    does no more."""

    task: Task
    child: Child
    slot: int
    share: float | None = None
    over: bool = False


# Called with the tasks under way, and the share of each that is done, None if it is not known.
Watch = Callable[[Sequence[tuple[Task, float | None]]], None]


def run(tasks: Tasks, folder: Path, jobs: int, watch: Watch) -> None:
    """Does all tasks of the study in `folder`, `jobs` at once; a failed one does not stop the others.

    watch is called as they go on. On Ctrl-C every process saves what it has and ends, and KeyboardInterrupt goes on.
    """
    shares = core_shares(jobs)
    running: list[Running] = []
    idle: dict[int, Child] = {}  # by the slot: to start a process takes seconds
    try:
        while True:
            free = [slot for slot in range(jobs) if slot not in {one.slot for one in running}]
            busy = {one.task for one in running}
            waiting = [task for task in tasks.ready() if task not in busy]
            for slot, task in zip(free, waiting, strict=False):
                child = _begin(work_of(task, tasks, folder, jobs == 1), idle.pop(slot, None), shares[slot])
                running.append(Running(task, child, slot))
            if not running:
                return
            watch([(one.task, one.share) for one in running])
            heard = wait([one.child.connection for one in running], LOOK_EVERY_S)
            for one in [one for one in running if one.child.connection in heard]:
                if _settled(one, tasks, folder, jobs == 1):
                    running.remove(one)
                    if one.over or not _goes_on(tasks.cells[one.task.cell]):
                        one.child.end()
                    else:
                        idle[one.slot] = one.child
    except KeyboardInterrupt:
        for one in running:
            one.child.interrupt()
        for one in running:
            one.child.wait()
        raise
    finally:
        for child in (*idle.values(), *(one.child for one in running)):
            child.end()


def work_of(task: Task, tasks: Tasks, folder: Path, alone: bool) -> Work:
    """The work that is sent to a process for a task."""
    cell = replace(tasks.cells[task.cell], own_extension=None)  # the process reads it itself, and may find it elsewhere
    parent = None if cell.cell.continues is None else tasks.cells[cell.cell.continues].path
    return task, cell, folder, parent, alone


def _begin(work: Work, idle: Child | None, share: Share) -> Child:
    """The process that does the work: the idle one, or a new one if there is none or it was killed."""
    if idle is not None:
        try:
            idle.send(work)
        except RuntimeError:
            idle.end()
        else:
            return idle
    child = Child(serve, "the process of a cell", share.environment())
    child.send(share)
    child.send(work)
    return child


def _goes_on(cell: Resolved) -> bool:
    """Whether a process can do another cell after this one: compiled code and what lies on a GPU would stay with it."""
    return cell.config.training.device == "cpu" and not cell.config.training.compile


def _settled(one: Running, tasks: Tasks, folder: Path, alone: bool) -> bool:
    """Receives a message of a process, which goes on with the evaluation of its cell if that is ready. Returns whether
    it has nothing more to do."""
    try:
        heard = one.child.receive()
    except (UserError, MemoryError, RuntimeError, OSError) as error:
        one.over = True
        tasks.fail(one.task, reason_of(error))
    else:
        if isinstance(heard, float):
            one.share = heard
            return False
        tasks.settle((one.task,), heard)
        further = Task("evaluate", one.task.cell)
        if further in tasks.ready():
            try:
                one.child.send(work_of(further, tasks, folder, alone))
            except (RuntimeError, OSError):  # it was killed meanwhile: another process does the evaluation
                one.over = True
                return True
            one.task, one.share = further, None
            return False
    return True
