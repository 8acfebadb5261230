"""How long a study takes here: the real training and evaluation of one cell of each kind, cut short, and extrapolated.

If several jobs run at once, as many copies of a cell are measured at once, because they share the machine's memory too.
"""

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from extrapolate.data.store import Store
from extrapolate.evaluation import lengths
from extrapolate.evaluation.protocols.base import lengths_of, parse_protocol
from extrapolate.extensions import recipe as recipes
from extrapolate.machine.children import Child, reply
from extrapolate.machine.limits import cores
from extrapolate.machine.memory import lifetime_peak_mib
from extrapolate.runs import trust
from extrapolate.studies.resolved import Planned, Resolved
from extrapolate.studies.tasks import Task, Tasks
from extrapolate.studies.worker import core_shares, take
from extrapolate.training import loop

TRAINING_S = 3.0  # the least time for the steps that are measured
LEAST_STEPS = 6
WARM_UP_STEPS = 2  # not counted; the first one compiles
EVALUATED_TARGETS = 4096
# Settings in which cells of one kind may differ: they change neither the cost of a step nor that of an evaluation.
_FREE = ("seed", "lr", "tokens", "min_lr_ratio", "warmup_ratio", "weight_decay", "beta1", "beta2", "clip")


@dataclass(frozen=True)
class Estimate:
    """Seconds of training and evaluation, and the peak memory in MiB, of each cell; and the seconds of the whole study.

    Only one learning rate of each model is evaluated and continued. The first stands for it; the others have 0 s.
    """

    jobs: int
    training_s: dict[str, float]
    evaluation_s: dict[str, float]
    peak_mib: dict[str, float]

    @property
    def seconds(self) -> float:
        """The duration of the whole study: each cell in turn goes to the job that is free first."""
        busy_until = [0.0] * self.jobs
        for name, training_s in self.training_s.items():
            first = busy_until.index(min(busy_until))
            busy_until[first] += training_s + self.evaluation_s[name]
        return max(busy_until)


def kind_of(cell: Resolved) -> str:
    """A key that is equal for cells with the same cost of a step and of an input."""
    config = cell.config.model_dump(exclude={"origin"})
    config["training"] = {name: value for name, value in config["training"].items() if name not in _FREE}
    return json.dumps([config, repr(cell.evaluation)], sort_keys=True)


def estimate(cells: Sequence[Resolved], jobs: int, tell: Callable[[int, int], None]) -> Estimate:
    """Measures one cell of each kind. tell: called with the number of kinds measured, and of all."""
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
    """The number of jobs that finishes most cells per hour, and the cells per hour by the numbers tried.

    The cell with most operations is measured, alone with all cores and with a copy per core, or per cell if there are
    fewer cells than cores.
    """
    longest = max(cells, key=lambda cell: cell.parameters * cell.config.training.tokens)
    rates = {}
    for jobs in sorted({1, min(cores(), len(cells))}):
        cost = measure(longest, jobs)
        rates[jobs] = 3600 * jobs / (cost.training_s(longest) + cost.evaluation_s(longest))
    return max(rates, key=lambda jobs: rates[jobs]), rates


@dataclass(frozen=True)
class Cost:
    """Seconds to start a process and a model, including compilation, of a step and of an input of the evaluation; and
    the peak memory of the process, MiB."""

    start_s: float
    step_s: float
    input_s: float
    peak_mib: float

    def training_s(self, cell: Resolved) -> float:
        """The duration of the cell's training."""
        return self.start_s + self.step_s * cell.config.training.steps

    def evaluation_s(self, cell: Resolved) -> float:
        """The duration of the cell's evaluation in the process that trained it."""
        return self.input_s * cell.evaluation_inputs


def measure(cell: Resolved, jobs: int) -> Cost:
    """The cell's mean cost with `jobs` jobs at once, each with its share of the cores."""
    recipe = cell.own_extension  # a process cannot import a user's own class: it reads the file
    own = None if recipe is None else (recipe.text, [file.path for file in recipe.files])
    children: list[Child] = []
    with contextlib.ExitStack() as ended:
        for share in core_shares(jobs):
            child = ended.enter_context(Child(serve, f"the measurement of {cell.name}", share.environment()))
            children.append(child)
            child.send((share, replace(cell, own_extension=None), own, time.time()))
        costs = [astuple(child.receive()) for child in children]
    return Cost(*map(statistics.fmean, zip(*costs, strict=True)))


def serve(connection: Connection) -> None:
    """Measures one cell, in a process of its own."""
    share, cell, own, began = connection.recv()
    take(share)
    with trust.only(cell.code), tempfile.TemporaryDirectory() as folder:
        cell = replace(cell, own_extension=None if own is None else recipes.parse(*own))
        start_s, steps = _train(cell, Path(folder) / "run", began)
        input_s = _evaluate(cell, Path(folder) / "run")
    step_s = statistics.median(steps[WARM_UP_STEPS:] or steps[-1:])  # a short budget has few steps
    compile_s = max(0.0, steps[0] - step_s) if cell.config.training.compile else 0.0
    reply(connection, Cost(start_s + compile_s, step_s, input_s, lifetime_peak_mib()))


class _Enough(Exception):  # noqa: N818 (not an error)
    """Ends a training after enough steps."""


def _train(cell: Resolved, path: Path, began: float) -> tuple[float, list[float]]:
    """The seconds from `began` to the first step, and the seconds of every step."""
    steps: list[float] = []
    batch = cell.config.training.batch_size * cell.config.training.seq_len

    def report(row: dict[str, Any]) -> None:
        if "tokens_per_s" not in row:
            return
        steps.append(batch / row["tokens_per_s"])
        if len(steps) >= LEAST_STEPS and sum(steps[WARM_UP_STEPS:]) >= TRAINING_S:
            raise _Enough

    config = cell.config.model_copy(update={"origin": None})
    with contextlib.suppress(_Enough):
        loop.train(
            config, Store.open(cell.data), path, user_encoding=cell.user_file, extension=cell.own_extension,
            report=report,
        )  # fmt: skip
    return max(0.0, time.time() - began - sum(steps)), steps


def _evaluate(cell: Resolved, path: Path) -> float:
    """The seconds of an input."""
    settings = cell.evaluation
    most = settings.most_targets()
    names = [parse_protocol(protocol).name for protocol in settings.protocols]
    few = max(EVALUATED_TARGETS, *lengths_of(settings.factors, cell.config.training.seq_len))  # a span of each length
    caps = {name: min(most.get(name, few), few) for name in names}
    if not caps:
        return 0.0
    store = Store.open(cell.data)
    short = replace(settings, max_targets=caps, checkpoint="last", probes=())
    planned = Planned(path, cell.config, cell.user_file, cell.own_extension, store, None, False)
    began = time.perf_counter()
    for _ in lengths.evaluate(planned, store, short):
        pass
    return (time.perf_counter() - began) / lengths.expected_inputs(planned, store, short)
