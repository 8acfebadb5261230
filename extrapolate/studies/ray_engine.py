"""The engine of several machines: Ray runs the cells, and its workers write into a folder that all machines share."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError
from extrapolate.runs.run import LOG
from extrapolate.studies.local import LOOK_EVERY_S, Watch, Work, work_of
from extrapolate.studies.tasks import Task, Tasks
from extrapolate.studies.worker import Told

RETRIES = 3  # of a cell whose worker died: it goes on from its last saved state


@dataclass
class Running:
    """A task that Ray has: it may wait for a worker."""

    task: Task
    path: Path

    @property
    def told(self) -> Told | None:
        """How far it is, by the run's log: only trainings write one as they go on."""
        log = self.path / LOG
        if self.task.kind != "train" or not log.is_file():
            return None
        with contextlib.suppress(ValueError, IndexError, KeyError, OSError):  # a line may be half written
            lines = log.read_text(encoding="utf-8").splitlines()
            budget = json.loads((self.path / "config.json").read_text(encoding="utf-8"))["config"]["training"]["tokens"]
            return Told("training", float(json.loads(lines[-1])["tokens"]), float(budget), "")
        return None


def run(tasks: Tasks, folder: Path, address: str | None, cpus: float, gpus: float, watch: Watch) -> None:
    """Does all tasks of the study in `folder`, as many at once as the cluster has room for.

    address: the cluster's, `auto` for the one of this machine (default: a new one here, which ends with this call).
    cpus, gpus: of each cell; a share of a GPU where several cells fit on one. A worker that dies is replaced, and its
    cell goes on. Raises UserError where Ray is not installed, or there is no cluster at the address.
    """
    ray = _ray()
    with _cluster(ray, address):
        if gpus > ray.cluster_resources().get("GPU", 0) or cpus > ray.cluster_resources().get("CPU", 0):
            raise UserError(f"no machine of the cluster has `cpus={cpus:g}` and `gpus={gpus:g}` for a cell")
        remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_calls=1, max_retries=RETRIES)(_perform)
        running: dict[Any, Running] = {}
        while True:
            busy = {one.task for one in running.values()}
            for task in [task for task in tasks.ready() if task not in busy]:
                # How many run beside each other is Ray's to decide: no times are kept.
                work = work_of(task, tasks, folder.resolve(), alone=False)
                running[remote.remote(work, os.getcwd())] = Running(task, tasks.cells[task.cell].path)
            if not running:
                return
            watch(list(running.values()))
            ended, _ = ray.wait(list(running), timeout=LOOK_EVERY_S)
            for reference in ended:
                task = running.pop(reference).task
                try:
                    ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    tasks.fail(task, str(error.cause))
                except ray.exceptions.RayError as error:
                    tasks.fail(task, f"its worker died {RETRIES + 1} times: {str(error).splitlines()[0]}")
                else:
                    tasks.finish(task)


def _perform(work: Work, directory: str) -> None:
    """In a worker of Ray: one task, in the directory that paths are relative to."""
    from extrapolate.progress import QUIET
    from extrapolate.studies.worker import perform

    os.chdir(directory)
    perform(*work, progress=QUIET)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("the engine ray needs the package ray: pip install 'extrapolate[ray]'") from None
    return ray


@contextlib.contextmanager
def _cluster(ray: Any, address: str | None) -> Iterator[None]:
    """Workers find this program where it is on this machine: the others need it in the same place."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join([package, *filter(None, sys.path)])
    try:
        ray.init(
            address=address or "local", include_dashboard=False, log_to_driver=False, logging_level="error",
            configure_logging=False, runtime_env={"env_vars": {"PYTHONPATH": path}},
        )  # fmt: skip
    except ConnectionError as error:
        raise UserError(f"there is no Ray cluster at `address={address}`: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()
