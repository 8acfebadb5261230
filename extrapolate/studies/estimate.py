"""How long a study takes here: the tokens of every cell, at the speed that its model has in a few steps.

A sweep's processes share the machine, so as many processes measure at once as there are jobs.
"""

import contextlib
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from extrapolate.benchmark import TokenCost, measure_token
from extrapolate.machine.children import Child, reply
from extrapolate.machine.limits import cores, stay_within_quota
from extrapolate.machine.memory import keep_freed_memory
from extrapolate.runs import trust
from extrapolate.runs.resolve import operations, token_operations
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.tasks import Task, Tasks
from extrapolate.studies.worker import core_shares, take
from extrapolate.training.gradient_step import VALIDATION_TARGETS
from extrapolate.training.half import kept, trained_tokens
from extrapolate.training.loop import VALIDATIONS

MEASURED_S = 8.0  # the least time that a process measures, over all of its models
START_S = 6.0  # until a process computes, and the report at the end
CELL_S = 3.0  # besides a cell's tokens: its model, checks, files
# A compiled cell has a process of its own, which compiles first; a step then takes less time than the eager one.
COMPILE_S, COMPILED = 25.0, 0.75


@dataclass(frozen=True)
class Estimate:
    """Seconds of training and evaluation of each cell, and of the whole study.

    Only one learning rate of each model is evaluated and continued. The first stands for it; the others have 0 s.
    """

    jobs: int
    training_s: dict[str, float]
    evaluation_s: dict[str, float]

    @property
    def seconds(self) -> float:
        """The duration of the whole study: each cell in turn goes to the job that is free first."""
        busy_until = [START_S] * self.jobs
        for name, training_s in self.training_s.items():
            first = busy_until.index(min(busy_until))
            busy_until[first] += training_s + self.evaluation_s[name]
        return max(busy_until)


def estimate(cells: Sequence[Resolved], jobs: int, tell: Callable[[int, int], None]) -> Estimate:
    """Measures each model once. tell: called with the number of models measured, and of all."""
    models = {_model_key(cell): cell for cell in cells}
    measured = list(itertools.islice(itertools.cycle(models.items()), max(jobs, len(models))))
    found = measure([cell for _, cell in measured], jobs, tell)
    costs = {key: cost for (key, _), cost in zip(measured, found, strict=True)}
    of = {cell.name: costs[_model_key(cell)] for cell in cells}
    expected = set(Tasks(cells, lambda cell: 0.0).expected())
    return Estimate(
        jobs,
        {c.name: training_s(c, of[c.name]) if Task("train", c.name) in expected else 0.0 for c in cells},
        {c.name: evaluation_s(c, of[c.name]) if Task("evaluate", c.name) in expected else 0.0 for c in cells},
    )


def _model_key(cell: Resolved) -> str:
    """A key that is equal for cells whose models are as fast as each other."""
    training = cell.config.training
    speed = (training.seq_len, training.micro_batch_size, training.optimizer, training.device, training.precision)
    return repr((cell.config.encoding, cell.config.model, speed, _lengths(cell)))


def _lengths(cell: Resolved) -> list[int]:
    """The lengths at which a cell's evaluation is measured: its training length, and the longest."""
    lengths = [length for length, _ in cell.evaluation_inputs]
    return sorted({cell.config.training.seq_len, max(lengths, default=cell.config.training.seq_len)})


def training_s(cell: Resolved, cost: TokenCost) -> float:
    """The seconds of a cell's training, with its validations."""
    training = cell.config.training
    half = kept(cell.config, cell.cell.settings.get("half"))
    learning = cost.training_s * trained_tokens(training, half)
    validating = VALIDATIONS * VALIDATION_TARGETS * cost.evaluation_at(training.seq_len)
    return CELL_S + validating + (COMPILE_S + COMPILED * learning if training.compile else learning)


def evaluation_s(cell: Resolved, cost: TokenCost) -> float:
    """The seconds of a cell's evaluation. What is not scored takes as much less time as it takes fewer operations."""
    seconds, sizes = 0.0, cell.config.model
    for (length, scored), inputs in cell.evaluation_inputs.items():
        share = token_operations(sizes, length, scored) / token_operations(sizes, length)
        seconds += inputs * cost.evaluation_at(length) * share
    return seconds


def fastest_jobs(cells: Sequence[Resolved]) -> tuple[int, dict[int, float]]:
    """The number of jobs that finishes most cells per hour, and the cells per hour by the numbers tried.

    The cell with most operations is measured, alone with all cores and with a copy per core, or per cell if there are
    fewer cells than cores.
    """
    longest = max(cells, key=lambda cell: operations(cell.config))
    rates = {}
    for jobs in sorted({1, min(cores(), len(cells))}):
        costs = measure([longest] * jobs, jobs)
        rates[jobs] = 3600 * jobs / statistics.fmean(training_s(longest, c) + evaluation_s(longest, c) for c in costs)
    return max(rates, key=lambda jobs: rates[jobs]), rates


def measure(
    cells: Sequence[Resolved], jobs: int, tell: Callable[[int, int], None] = lambda done, total: None
) -> list[TokenCost]:
    """The cost of a token of each cell's model, measured by `jobs` processes at once, which share the cores."""
    with contextlib.ExitStack() as ended:
        children: list[Child] = []
        for number, share in enumerate(core_shares(jobs)):
            child = ended.enter_context(Child(serve, "the measurement of speed", share.environment()))
            children.append(child)
            # A process cannot import a user's own extension, whose cost is not measured either.
            child.send((share, [replace(cell, own_extension=None) for cell in cells[number::jobs]]))
        costs = []
        for number in range(len(cells)):
            tell(number, len(cells))
            costs.append(children[number % jobs].receive())
        return costs


def serve(connection: Connection) -> None:
    """Measures cells' models, in a process of its own."""
    share, cells = connection.recv()
    take(share)
    keep_freed_memory()
    stay_within_quota()
    for cell in cells:
        lengths = _lengths(cell)
        seconds = MEASURED_S / len(cells) / (1 + len(lengths))
        with trust.only(cell.code):
            reply(connection, measure_token(cell.config, cell.build_model(drawn=True), lengths, seconds))
