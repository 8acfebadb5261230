"""The engine for one machine: several tasks at once, each in a process with its share of the cores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path

from extrapolate.errors import UserError, reason_of
from extrapolate.machine.children import Child
from extrapolate.studies.tasks import Task, Tasks
from extrapolate.studies.worker import Assignment, Share, core_shares, serve

LOOK_EVERY_S = 1.0


@dataclass
class Running:
    """A task under way. share: how much of it is done, 0 to 1; None if not known yet. over: its process is unusable."""

    task: Task
    child: Child
    slot: int
    share: float | None = None
    over: bool = False


# Called with the tasks under way, each with the share that is done, or None if that is not known.
Watch = Callable[[Sequence[tuple[Task, float | None]]], None]


def run(tasks: Tasks, folder: Path, jobs: int, watch: Watch) -> None:
    """Does all tasks of the study in `folder`, `jobs` at once; a failed one does not stop the others.

    watch is called at least every LOOK_EVERY_S seconds. On Ctrl-C every process saves its state and ends, and
    KeyboardInterrupt is raised.
    """
    shares = core_shares(jobs)
    running: list[Running] = []
    idle: dict[int, Child] = {}  # by slot; kept because starting a process takes seconds
    try:
        while True:
            free = [slot for slot in range(jobs) if slot not in {one.slot for one in running}]
            busy = {one.task for one in running}
            waiting = [task for task in tasks.ready() if task not in busy]
            for slot, task in zip(free, waiting, strict=False):
                child = _begin(assignment_of(task, tasks, folder, jobs == 1), idle.pop(slot, None), shares[slot])
                running.append(Running(task, child, slot))
            if not running:
                return
            watch([(one.task, one.share) for one in running])
            heard = wait([one.child.connection for one in running], LOOK_EVERY_S)
            for one in [one for one in running if one.child.connection in heard]:
                if _settled(one, tasks, folder, jobs == 1):
                    running.remove(one)
                    training = tasks.cells[one.task.cell].config.training
                    if one.over or training.device != "cpu" or training.compile:  # its GPU memory and code would stay
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


def assignment_of(task: Task, tasks: Tasks, folder: Path, alone: bool) -> Assignment:
    """The message that asks a process to do a task."""
    cell = replace(tasks.cells[task.cell], own_extension=None)  # the process reads it itself
    parent = None if cell.cell.continues is None else tasks.cells[cell.cell.continues].path
    return task, cell, folder, parent, alone


def _begin(assignment: Assignment, idle: Child | None, share: Share) -> Child:
    """Sends the work to the idle process, or to a new one if there is none or it was killed. Returns the process."""
    if idle is not None:
        try:
            idle.send(assignment)
        except RuntimeError:
            idle.end()
        else:
            return idle
    child = Child(serve, "the process of a cell", share.environment())
    child.send(share)
    child.send(assignment)
    return child


def _settled(one: Running, tasks: Tasks, folder: Path, alone: bool) -> bool:
    """Receives a message of a process, and sends it the evaluation of its cell if that is ready. Returns whether the
    process has nothing more to do."""
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
                one.child.send(assignment_of(further, tasks, folder, alone))
            except (RuntimeError, OSError):  # it was killed: another process does the evaluation
                one.over = True
                return True
            one.task, one.share = further, None
            return False
    return True
