"""Sends the rows of a training's log to a tracker: Trackio, Weights & Biases, or TensorBoard.

A tracker gets what the log has (losses, learning rates, gradient norms and speeds by step) and the run's configuration
and provenance. It gets no code, no console output and no measurements of the machine.
"""

import contextlib
import contextvars
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol

from extrapolate import files
from extrapolate.errors import UserError, reason_of
from extrapolate.folders import LOG
from extrapolate.progress import Say
from extrapolate.runs.run import Run
from extrapolate.specs import did_you_mean

PROJECT = "extrapolate"
TOLD = "tracked.json"  # in a run's folder: each tracker's name for the run, and how many rows of the log it has

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Tracking:
    """Which tracker to use, the group of the runs, and what to call with a warning if the tracker fails."""

    tracker: str | None = None
    group: str | None = None
    warn: Say | None = None


UNTRACKED = Tracking()


class _Opened(Protocol):
    """A run in a tracker. place: where the user finds it."""

    place: str

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self, failed: bool) -> None: ...


class _TensorBoard:
    """Event files in the run's own folder, whose name is then the run's name in TensorBoard."""

    def __init__(self, run: Run, name: str, group: str | None, fresh: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.place = str(run.path)
        self._writer = SummaryWriter(self.place)
        if fresh:
            for title, value in _about(run).items():
                self._writer.add_text(title, f"```json\n{json.dumps(value, indent=2)}\n```")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # so that nothing is lost if the training is killed

    def close(self, failed: bool) -> None:
        self._writer.close()


class _Wandb:
    """A run of Weights & Biases, which reads its own variables: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY."""

    # Seconds to wait for the server when a training begins and ends. The library's defaults are 90 and forever.
    LIMITS: ClassVar[dict[str, Any]] = {"init_timeout": 20.0, "finish_timeout": 60.0}

    def __init__(self, run: Run, name: str, group: str | None, fresh: bool) -> None:
        import wandb

        known = wandb.Settings.model_fields  # not every version has all limits
        limits: dict[str, Any] = {
            key: limit for key, limit in self.LIMITS.items() if key in known and wandb_variable(key) is None
        }
        # Otherwise it asks for a key on the terminal, and the training waits.
        wandb.setup(settings=wandb.Settings(silent=True))
        self._run = wandb.init(
            project=wandb_variable("project") or PROJECT, id=name, name=run.name, group=group, dir=str(run.path),
            config=_about(run), resume="allow", reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_code=True, disable_git=True, x_disable_meta=True,
                x_disable_stats=True, x_disable_machine_info=True, **limits,
            ),
        )  # fmt: skip
        self.place = str(run.path / "wandb") if self._run.offline else str(self._run.url)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


def wandb_variable(setting: str) -> str | None:
    """The user's environment variable for a setting of Weights & Biases."""
    return os.environ.get(f"WANDB_{setting.upper()}")


class _Trackio:
    """A run of Trackio, which reads its own variables: TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL."""

    def __init__(self, run: Run, name: str, group: str | None, fresh: bool) -> None:
        import trackio

        with contextlib.redirect_stdout(sys.stderr):
            # In its own context, because `init` ends the run of its context, and several trainings may run at once.
            self._run = contextvars.copy_context().run(
                trackio.init,
                PROJECT, name=f"{run.name}-{name}", group=group, config=_about(run), resume="allow", embed=False,
                auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip
        self.place = f"the project {PROJECT}, with the command trackio show"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self, failed: bool) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()


_OPEN: dict[str, Callable[[Run, str, str | None, bool], _Opened]] = {
    "trackio": _Trackio,
    "wandb": _Wandb,
    "tensorboard": _TensorBoard,
}


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
    """Yields a function to call with every row of the log of the run in `path`, after the row is written.

    say: called with where the tracker shows the run. If the tracker fails, `tracking.warn` (default: `say`) gets one
    warning, and the training goes on without it.
    """
    if tracking.tracker is None:
        yield lambda row: None
        return
    with _Sent(path, tracking.tracker, tracking.group, say, tracking.warn or say) as report:
        yield report


class _Sent:
    """Sends a tracker the rows of a log that it does not have yet.

    A resumed training repeats some steps, and a tracker may join late. So a row is sent if it comes after the last row
    in the log that the tracker has.
    """

    def __init__(self, path: Path, tracker: str, group: str | None, say: Say, warn: Say) -> None:
        self.path, self.tracker, self.group, self.say, self.warn = path, tracker, group, say, warn
        self._opened: _Opened | None = None
        self._failed = False
        self._known: dict[str, Any] = {}
        self._place, self._step = 0, 0

    def __enter__(self) -> Report:
        return self._report

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._opened is not None and not self._failed:
            with self._lasting():
                self._opened.close(failed=error is not None)

    def _report(self, row: dict[str, Any]) -> None:
        """Sends a row that was logged, the first time with all rows before it."""
        if self._failed:
            return
        with self._lasting():
            if self._opened is not None:
                self._hand_over(row)
                return
            self._open()
            for earlier in (self.path / LOG).read_text("utf-8").splitlines():
                self._hand_over(json.loads(earlier))  # the last one is `row`

    def _open(self) -> None:
        run = Run.open(self.path)
        kept = self.path / TOLD
        self._known = files.read_json(kept) if kept.is_file() else {}
        mine = self._known.get(self.tracker, {})
        if mine.get("config_sha256") != run.config_sha256:  # there is none, or it is of another run in this folder
            mine = {"name": secrets.token_hex(4), "rows": 0, "config_sha256": run.config_sha256}
        self._known[self.tracker] = mine
        self._opened = _OPEN[self.tracker](run, mine["name"], self.group, mine["rows"] == 0)
        self.say(f"{self.tracker} shows the run: {self._opened.place}")

    def _hand_over(self, row: dict[str, Any]) -> None:
        assert self._opened is not None
        self._place += 1
        mine = self._known[self.tracker]
        if self._place > mine["rows"]:
            mine["rows"] = self._place
            # Recorded first, so that a kill in between loses a point rather than doubles it; not flushed, like the log.
            temporary = self.path / f".{TOLD}.{os.getpid()}.partial"
            temporary.write_text(json.dumps(self._known), encoding="utf-8")
            temporary.replace(self.path / TOLD)
            said = {"step", "tokens"} if row["step"] == self._step else {"step"}  # in the previous row of this step
            self._opened.log(row["step"], {name: value for name, value in row.items() if name not in said})
        self._step = row["step"]

    @contextlib.contextmanager
    def _lasting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever failed in the library or network, the training must go on
            self._failed = True
            self.warn(f"{self.tracker} failed ({reason_of(error)}): the training goes on without it")


def _about(run: Run) -> dict[str, Any]:
    """The run's configuration, by section, and its provenance."""
    return run.config.model_dump(mode="json") | {"provenance": run.provenance}
