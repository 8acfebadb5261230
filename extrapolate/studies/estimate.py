"""How long a study takes here, before it runs: each kind of cell measured once, and multiplied."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extrapolate.machine.limits import cores
from extrapolate.studies.measure import Cost, measure
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.tasks import Task, Tasks

# What cells of one kind may differ in: it changes neither the cost of a step nor that of an evaluation.
_FREE = ("seed", "lr", "tokens", "min_lr_ratio", "warmup_ratio", "weight_decay", "beta1", "beta2", "clip")


@dataclass(frozen=True)
class Estimate:
    """Seconds of each cell, as if it ran alone in its slot, and of the whole with `jobs` jobs at once.

    0 for what is not done: of the learning rates of a model one is evaluated and continued, for which the first stands.
    """

    jobs: int
    training_s: dict[str, float]
    evaluation_s: dict[str, float]
    peak_mib: dict[str, float]

    @property
    def seconds(self) -> float:
        """Of the whole study: each cell in turn goes to the job that is free first."""
        busy_until = [0.0] * self.jobs
        for name, training_s in self.training_s.items():
            first = busy_until.index(min(busy_until))
            busy_until[first] += training_s + self.evaluation_s[name]
        return max(busy_until)


def kind_of(cell: Resolved) -> str:
    """The same for cells that cost the same for each step and input."""
    config = cell.config.model_dump(exclude={"origin"})
    config["training"] = {name: value for name, value in config["training"].items() if name not in _FREE}
    return json.dumps([config, repr(cell.evaluation)], sort_keys=True)


def estimate(cells: Sequence[Resolved], jobs: int, tell: Callable[[int, int], None]) -> Estimate:
    """Measures one cell of each kind. tell: how many kinds are measured, and how many there are."""
    costs: dict[str, Cost] = {}
    kinds = {kind_of(cell): cell for cell in cells}
    for done, (kind, cell) in enumerate(kinds.items()):
        tell(done, len(kinds))
        costs[kind] = measure(cell, jobs)
    of = {cell.name: costs[kind_of(cell)] for cell in cells}
    expected = set(Tasks(cells, lambda cell: 0.0).expected())
    return Estimate(
        jobs,
        {c.name: of[c.name].training_s(c) if Task("train", c.name) in expected else 0.0 for c in cells},
        {c.name: of[c.name].evaluation_s(c) if Task("evaluate", c.name) in expected else 0.0 for c in cells},
        {cell.name: of[cell.name].peak_mib for cell in cells},
    )


def fastest_jobs(cells: Sequence[Resolved]) -> tuple[int, dict[int, float]]:
    """How many jobs at once finish most cells in an hour, and how many each number of jobs finishes.

    The cell that takes most operations is measured: alone with all cores, and with as many copies as there are cores.
    Fewer cells than jobs leave cores idle, so that there are never more jobs than cells.
    """
    longest = max(cells, key=lambda cell: cell.parameters * cell.config.training.tokens)
    tried = sorted({1, min(cores(), len(cells))})
    rates = {}
    for jobs in tried:
        cost = measure(longest, jobs)
        rates[jobs] = 3600 * jobs / (cost.training_s(longest) + cost.evaluation_s(longest))
    return max(rates, key=lambda jobs: rates[jobs]), rates
