"""Sends the rows of a training's log to a tracker: Trackio, Weights & Biases, or TensorBoard.

A tracker gets what the log has (losses, learning rates, gradient norms and speeds by step) and the run's configuration
and provenance. It gets no code, no console output and no measurements of the machine.
"""

import contextlib
import contextvars
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError, reason_of
from extrapolate.progress import Say
from extrapolate.runs.run import CONFIG, Run
from extrapolate.specs import did_you_mean

PROJECT = "extrapolate"
# Seconds to wait for the server of Weights & Biases; the library's defaults are 90 and forever.
WANDB_LIMITS: dict[str, Any] = {"init_timeout": 20.0, "finish_timeout": 60.0}

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Tracking:
    """Which tracker to use, the group of the runs, and what to call with a warning if the tracker fails."""

    tracker: str | None = None
    group: str | None = None
    warn: Say | None = None


UNTRACKED = Tracking()


@dataclass(frozen=True)
class Opened:
    """A run in a tracker. log: called with values and `step=`. finish: called at the end. place: where the user finds
    the run."""

    log: Callable[..., Any]
    finish: Callable[[], Any]
    place: str


def _tensorboard(run: Run, group: str | None, step: int) -> Opened:
    """Event files in the run's own folder, whose name is then the run's name in TensorBoard."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run.path), purge_step=step)  # hides what a killed training wrote from this step on
    for title, value in _about(run).items():
        writer.add_text(title, f"```json\n{json.dumps(value, indent=2)}\n```", step)

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()  # so that nothing is lost if the training is killed

    return Opened(log, writer.close, str(run.path))


def _wandb(run: Run, group: str | None, step: int) -> Opened:
    """A run of Weights & Biases, which reads its own variables: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY."""
    import wandb

    wandb.setup(settings=wandb.Settings(silent=True))  # or it asks for a key on the terminal, and the training waits
    known = wandb.Settings.model_fields  # not every version has all limits
    limits = {k: limit for k, limit in WANDB_LIMITS.items() if k in known and f"WANDB_{k.upper()}" not in os.environ}
    opened = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or PROJECT, id=_identity(run), name=run.name, group=group,
        dir=str(run.path), config=_about(run), resume="allow", reinit="create_new",
        settings=wandb.Settings(
            silent=True, console="off", disable_code=True, disable_git=True, x_disable_meta=True, x_disable_stats=True,
            x_disable_machine_info=True, **limits,
        ),
    )  # fmt: skip
    place = str(run.path / "wandb") if opened.offline else str(opened.url)
    return Opened(opened.log, lambda: opened.finish(exit_code=int(sys.exc_info()[0] is not None)), place)


def _trackio(run: Run, group: str | None, step: int) -> Opened:
    """A run of Trackio, which reads its own variables: TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL."""
    import trackio

    # In its own context, because `init` ends the run of its context, and several trainings may run at once.
    opened = contextvars.copy_context().run(
        trackio.init,
        PROJECT, name=f"{run.name}-{_identity(run)}", group=group, config=_about(run), resume="allow", embed=False,
        auto_log_gpu=False, auto_log_cpu=False,
    )  # fmt: skip
    return Opened(opened.log, opened.finish, f"the project {PROJECT}, with the command trackio show")


# step: the first that is logged.
_OPEN: dict[str, Callable[[Run, str | None, int], Opened]] = {
    "trackio": _trackio,
    "wandb": _wandb,
    "tensorboard": _tensorboard,
}


def _identity(run: Run) -> str:
    """What a resumed training finds its run in a tracker by: other runs of these settings, or here, have another."""
    begun = (run.path / CONFIG).stat().st_mtime_ns
    return hashlib.sha256(f"{run.config_sha256} {begun}".encode()).hexdigest()[:8]


def _about(run: Run) -> dict[str, Any]:
    """The run's configuration, by section, and its provenance."""
    return run.config.model_dump(mode="json") | {"provenance": run.provenance}


def check(tracker: str | None) -> None:
    """Raises UserError if there is no such tracker, or its library is not installed. None means no tracker."""
    if tracker is None:
        return
    if tracker not in _OPEN:
        raise UserError(f"unknown tracker '{tracker}'; {did_you_mean(tracker, _OPEN)}")
    found = find_spec(tracker)
    if found is None or found.origin is None:  # a folder of that name, such as wandb makes, is not a library
        raise UserError(
            f"`tracker='{tracker}'` needs the package {tracker}: pip install 'extrapolate[trackers]', or leave it out"
        )


@contextlib.contextmanager
def tracked(path: Path, tracking: Tracking, say: Say) -> Iterator[Report]:
    """Yields a function to call with every new row of the log of the run in `path`.

    say: called with where the tracker shows the run. If the tracker fails, `tracking.warn` (default: `say`) gets one
    warning, and the training goes on without it.
    """
    opened: Opened | None = None
    failed = tracking.tracker is None

    @contextlib.contextmanager
    def lasting() -> Iterator[None]:
        nonlocal failed
        try:
            yield
        except Exception as error:  # whatever failed in the library or network, the training must go on
            failed = True
            (tracking.warn or say)(f"{tracking.tracker} failed ({reason_of(error)}): the training goes on without it")

    def report(row: dict[str, Any]) -> None:
        nonlocal opened
        if failed or tracking.tracker is None:
            return
        with lasting(), contextlib.redirect_stdout(sys.stderr):  # Trackio prints
            if opened is None:
                opened = _OPEN[tracking.tracker](Run.open(path), tracking.group, row["step"])
                say(f"{tracking.tracker} shows the run: {opened.place}")
            known = {"step"} if "loss" in row else {"step", "tokens"}  # a validation's tokens are those of its step
            opened.log({name: value for name, value in row.items() if name not in known}, step=row["step"])

    try:
        yield report
    finally:
        if opened is not None and not failed:
            with lasting(), contextlib.redirect_stdout(sys.stderr):
                opened.finish()
