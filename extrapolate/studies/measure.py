"""What a cell costs on this machine: the real training and the real evaluation, cut short.

If several jobs run at once, as many copies of the cell are measured at once: they share the machine's memory too.
"""

import contextlib
import statistics
import tempfile
import time
from dataclasses import astuple, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from extrapolate.data.store import Store
from extrapolate.evaluation import lengths
from extrapolate.evaluation.protocols.base import parse_protocol
from extrapolate.extensions import recipe as recipes
from extrapolate.machine.children import Child, reply
from extrapolate.machine.memory import lifetime_peak_mib
from extrapolate.runs import trust
from extrapolate.studies.cores import core_shares, take
from extrapolate.studies.resolved import Planned, Resolved
from extrapolate.training import loop

TRAINING_S = 3.0  # of steps, at the least
LEAST_STEPS = 6
WARM_UP_STEPS = 2  # of which the first compiles
EVALUATED_TARGETS = 4096


@dataclass(frozen=True)
class Cost:
    """Seconds: to start a process and a model and to compile it, of a step, and of an input of the evaluation; and the
    most memory that the process held, MiB."""

    start_s: float
    step_s: float
    input_s: float
    peak_mib: float

    def training_s(self, cell: Resolved) -> float:
        """Of the cell's training, from start to end."""
        return self.start_s + self.step_s * cell.config.training.steps

    def evaluation_s(self, cell: Resolved) -> float:
        """Of the cell's evaluation, by the process that trained it."""
        return self.input_s * cell.evaluation_inputs


def measure(cell: Resolved, jobs: int) -> Cost:
    """The cell's cost with `jobs` jobs at once, each with its share of the cores."""
    recipe = cell.own_extension  # a user's own class is in no module that a process could import: it reads the file
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
    """So many steps were taken."""


def _train(cell: Resolved, path: Path, began: float) -> tuple[float, list[float]]:
    """The seconds from `began` to the first step, and of every step."""
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
    """Seconds of an input."""
    settings = cell.evaluation
    most = settings.most_targets()
    caps = {
        name: min(most.get(name, EVALUATED_TARGETS), EVALUATED_TARGETS)
        for name in (parse_protocol(protocol).name for protocol in settings.protocols)
    }
    if not caps:
        return 0.0
    store = Store.open(cell.data)
    short = replace(settings, max_targets=caps, checkpoint="last", probes=())
    planned = Planned(path, cell.config, cell.user_file, cell.own_extension, store, None)
    began = time.perf_counter()
    for _ in lengths.evaluate(planned, store, short):
        pass
    return (time.perf_counter() - began) / lengths.expected_inputs(planned, store, short)
