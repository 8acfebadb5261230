"""The engine for several machines, which share the study's folder: Ray runs the cells."""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError
from extrapolate.folders import LOG
from extrapolate.studies.local import LOOK_EVERY_S, Watch, assignment_of
from extrapolate.studies.status import tokens_due
from extrapolate.studies.tasks import Ended, Task, Tasks
from extrapolate.studies.worker import Assignment, perform_all

RETRIES = 3  # of a cell whose worker died: it continues from its last saved state
ANSWER_S = 5.0  # the timeout for a connection to the cluster


@dataclass
class Running:
    """Tasks of one cell that were given to Ray, one after the other. They may still wait for a worker."""

    tasks: Sequence[Task]
    path: Path

    @property
    def share(self) -> float | None:
        """How much of the first task is done, by the run's log, which only trainings write."""
        log = self.path / LOG
        if self.tasks[0].kind != "train" or not log.is_file():
            return None
        with contextlib.suppress(ValueError, IndexError, KeyError, OSError):  # a line may be half written
            tokens = float(json.loads(log.read_text(encoding="utf-8").splitlines()[-1])["tokens"])
            due = tokens_due(self.path)
            return tokens / due if due else 0.0
        return None


def run(tasks: Tasks, folder: Path, address: str | None, cpus: float, gpus: float, watch: Watch) -> None:
    """Does all tasks of the study in `folder`, as many at once as fit on the cluster.

    address: the address of the cluster, or `auto` for this machine's (default: a new cluster here, which ends with this
    call). cpus, gpus: for each cell; several cells can share a GPU. A worker that dies is replaced and its cell
    continues. Raises UserError if Ray is not installed, or there is no cluster at the address.
    """
    ray = _ray()
    with _cluster(ray, address):
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(has.get("CPU", 0) >= cpus and has.get("GPU", 0) >= gpus for has in alive):
            raise UserError(f"no machine of the cluster has `cpus={cpus:g}` and `gpus={gpus:g}` for a cell")
        remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_calls=1, max_retries=RETRIES)(_perform).remote
        running: dict[Any, Running] = {}
        while True:
            busy = {task for one in running.values() for task in one.tasks}
            for first in [task for task in tasks.ready() if task not in busy]:
                in_turn = tasks.in_turn(first)
                # Ray decides how many run at the same time, so times are not kept.
                assignments = [assignment_of(task, tasks, folder.resolve(), alone=False) for task in in_turn]
                running[remote(assignments, os.getcwd())] = Running(in_turn, tasks.cells[first.cell].path)
            if not running:
                return
            watch([(one.tasks[0], one.share) for one in running.values()])
            ended, _ = ray.wait(list(running), timeout=LOOK_EVERY_S)
            for reference in ended:
                one = running.pop(reference)
                try:
                    found: Ended = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    tasks.fail(one.tasks[0], str(error.cause))
                except ray.exceptions.RayError as error:
                    tasks.fail(one.tasks[0], f"its worker died {RETRIES + 1} times: {str(error).splitlines()[0]}")
                else:
                    tasks.settle(one.tasks, found)


def _perform(assignments: Sequence[Assignment], directory: str) -> Ended:
    """Runs in a worker of Ray: does tasks of one cell, in the directory that paths are relative to."""
    if not Path(directory).is_dir():
        return Ended(0, f"{socket.gethostname()} has no folder {directory}: share it among the machines")
    os.chdir(directory)
    return perform_all(assignments)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("the engine ray needs the package ray: pip install 'extrapolate[ray]'") from None
    return ray


@contextlib.contextmanager
def _cluster(ray: Any, address: str | None) -> Iterator[None]:
    """Connects to a cluster, whose machines have this program at the same path as this one."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join([package, *filter(None, sys.path)])
    try:
        _reach(address)
        with contextlib.chdir(package):  # or workers could import modules of the current folder, a stranger's perhaps
            ray.init(
                address=address or "local", include_dashboard=False, log_to_driver=False, logging_level="error",
                configure_logging=False, runtime_env={"env_vars": {"PYTHONPATH": path}},
            )  # fmt: skip
    except (OSError, OverflowError, ValueError) as error:
        ray.shutdown()  # or the remains of a ray:// connection block the next cluster of this process
        raise UserError(f"there is no Ray cluster at `address={address}`: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str | None) -> None:
    """Raises OSError if nothing answers at HOST:PORT or ray://HOST:PORT, which Ray would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        with socket.create_connection((host, int(port)), timeout=ANSWER_S):
            pass
