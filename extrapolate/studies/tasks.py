"""The tasks of a study's cells, and their order."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from extrapolate.studies import rates
from extrapolate.studies.cells import Cell
from extrapolate.studies.rates import Choice
from extrapolate.studies.resolved import Resolved

Kind = Literal["train", "evaluate"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Task:
    """Training or evaluating a cell."""

    kind: Kind
    cell: str


@dataclass(frozen=True)
class Ended:
    """How consecutive tasks of one cell ended: the number of finished ones, why the next one failed or how its training
    diverged, and what the user should know."""

    done: int
    failed: str | None = None
    diverged: str | None = None
    warnings: tuple[str, ...] = ()


class Tasks:
    """The tasks of a study, and what became of them: this determines which ones are ready.

    A cell is evaluated, and continued by others, once it is trained. Of cells that differ only in learning rate, that
    holds only for those with the best rate, once all are trained. Cells that continue others are evaluated at each of
    their own rates.
    """

    def __init__(
        self,
        cells: Sequence[Resolved],
        loss_of: Callable[[Resolved], float],
        tell: Callable[[str, str], None] = lambda name, reason: None,
    ) -> None:
        """loss_of: returns the validation loss of a trained cell. tell: called with each cell that fails, and why."""
        self.cells = {cell.name: cell for cell in cells}
        self.loss_of, self.tell = loss_of, tell
        self.done: set[Task] = set()
        self.failed: dict[Task, str] = {}
        self.diverged: dict[str, str] = {}  # cells, with the reason
        self.warnings: dict[str, list[str]] = {}  # each with the cells that it is about
        self.choices: dict[str, Choice] = {}  # by the name of each of a group's cells
        self.groups = _with_rates(self.cells)
        self._group = {cell.name: group for group in self.groups for cell in group}

    def finish(self, task: Task) -> None:
        """Marks a task as done."""
        self.done.add(task)
        self._choose(task.cell)

    def fail(self, task: Task, reason: str) -> None:
        """Marks a task as failed: those that need it are never done."""
        self.failed[task] = reason
        self.tell(task.cell, reason)
        self._choose(task.cell)

    def diverge(self, name: str, reason: str) -> None:
        """Marks a training as diverged. Its validation loss counts as infinite, and nothing follows it."""
        self.diverged[name] = reason
        self._choose(name)

    def settle(self, in_turn: Sequence[Task], ended: Ended) -> None:
        """Records how tasks of one cell ended."""
        for warning in ended.warnings:
            self.warnings.setdefault(warning, []).append(in_turn[0].cell)
        for task in in_turn[: ended.done]:
            self.finish(task)
        if ended.failed is not None:
            self.fail(in_turn[ended.done], ended.failed)
        if ended.diverged is not None:
            self.diverge(in_turn[ended.done].cell, ended.diverged)

    def ready(self) -> list[Task]:
        """The tasks that can be done now and are not done, in the order of the cells, trainings first."""
        return [task for task in self._every() if not self.settled(task) and self._can(task)]

    def expected(self) -> list[Task]:
        """The tasks that are done or will be, in the order of `ready`.

        A model's first learning rate stands for the one that is not chosen yet: all take the same time.
        """
        lost = self.without()
        return [task for task in self._every() if task in self.done or (task.cell not in lost and self._due(task))]

    def settled(self, task: Task) -> bool:
        """Whether a task is done, failed or diverged."""
        diverged = task.kind == "train" and task.cell in self.diverged
        return diverged or task in self.done or task in self.failed

    def in_turn(self, task: Task) -> tuple[Task, ...]:
        """A task that is ready, and the evaluation after it if the cell's model has a single learning rate."""
        follows = task.kind == "train" and task.cell not in self._group
        return (task, Task("evaluate", task.cell)) if follows else (task,)

    def chosen(self, name: str) -> bool:
        """Whether a cell is evaluated: no other rate is better for it, or for the cell that it continues."""
        root = self._root(name)
        choice = self.choices.get(root)
        return root not in self._group or (choice is not None and self.cells[root].lr == choice.chosen)

    def passed_over(self, name: str) -> bool:
        """Whether nothing more is done with a cell because another rate is better for it, or for what it continues."""
        return self._root(name) in self.choices and not self.chosen(name)

    def without(self) -> dict[str, str]:
        """The cells that can never be done, each with the reason."""
        found = {task.cell: reason for task, reason in self.failed.items()}
        for name, reason in self.diverged.items():
            if name not in self._group or (name in self.choices and self.choices[name].chosen is None):  # no other rate
                found[name] = f"it diverged: {reason}"
        for name, cell in self.cells.items():
            if (parent := cell.cell.continues) in found:
                found.setdefault(name, f"{parent}, which it continues, failed")
        return found

    def _every(self) -> Iterator[Task]:
        return (Task(kind, name) for kind in KINDS for name in self.cells)

    def _root(self, name: str) -> str:
        """The cell that a cell continues, whose model has the learning rates to choose from, or the cell itself."""
        return self.cells[name].cell.continues or name

    def _due(self, task: Task) -> bool:
        begins = task.kind == "train" and self._root(task.cell) == task.cell
        return begins or self._stands(self._root(task.cell))

    def _stands(self, root: str) -> bool:
        """Whether a cell has its model's learning rate, or the one that stands for it."""
        if root in self.choices or root not in self._group:
            return self.chosen(root)
        return self.cells[root].lr == self.cells[self._group[root][0].name].lr

    def _can(self, task: Task) -> bool:
        root = self._root(task.cell)
        if task.kind == "train" and root == task.cell:
            return True
        needed = root if task.kind == "train" else task.cell
        return Task("train", needed) in self.done and self.chosen(root)

    def _choose(self, name: str) -> None:
        """Chooses a model's learning rate once all its trainings are settled."""
        group = self._group.get(name, [])
        trainings = [Task("train", cell.name) for cell in group]
        if group and name not in self.choices and all(map(self.settled, trainings)):
            losses = {task.cell: self._loss(task) for task in trainings}
            choice = rates.choose(group, {cell.name: self.cells[cell.name].lr for cell in group}, losses)
            self.choices.update((cell.name, choice) for cell in group)

    def _loss(self, training: Task) -> float | None:
        if training.cell in self.diverged:
            return math.inf
        return self.loss_of(self.cells[training.cell]) if training in self.done else None


def share_of(cells: Sequence[Resolved], index: int, count: int) -> list[Resolved]:
    """Share `index` of `count` shares of the cells, which keep together cells that depend on each other."""
    of = {cell.name: cell for cell in cells}
    chosen_together = {cell.name: group[0].name for group in _with_rates(of) for cell in group}
    units: dict[str, list[Resolved]] = {}
    for cell in cells:
        first = cell.cell.continues or cell.name
        units.setdefault(chosen_together.get(first, first), []).append(cell)
    return [cell for unit in list(units.values())[index::count] for cell in unit]


def _with_rates(cells: Mapping[str, Resolved]) -> list[list[Cell]]:
    """Groups of cells that differ only in learning rate and seed, if there are several rates."""
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for one in cells.values():
        if one.cell.continues is None:
            groups.setdefault(one.cell.group, []).append(one.cell)
    return [group for group in groups.values() if len({cells[cell.name].lr for cell in group}) > 1]
