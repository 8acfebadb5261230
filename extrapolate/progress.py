"""Reporting the progress of long work: one interface for the command line, notebooks and programs."""

import math
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Protocol, Self

# Called with one line for the user.
Say = Callable[[str], None]


class Advance(Protocol):
    """Called during work, with its present part, the number of inputs (tokens) processed since the last call, and their
    mean loss, nats, if it is known."""

    def __call__(self, what: str, inputs: float, loss: float = math.nan) -> None: ...


def unseen(what: str, inputs: float, loss: float = math.nan) -> None:
    """Ignores progress."""


class Display(Protocol):
    """Displays one piece of work, for the duration of a `with` block."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        """Shows how much is done of the total, or without one, of the part `what`. The note is shown too."""


class Progress(Protocol):
    """Receives messages and progress."""

    def say(self, message: str) -> None:
        """Shows a line."""

    def display(self, unit: str, stopped: str = "stopped") -> Display:
        """Starts a piece of work. `unit` is what is counted; `stopped` is shown if the user stops it."""


class _NoDisplay:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        pass


class Quiet:
    """Shows nothing."""

    def say(self, message: str) -> None:
        """Does nothing."""

    def display(self, unit: str, stopped: str = "stopped") -> Display:
        """Displays nothing."""
        return _NoDisplay()


QUIET, SILENT = Quiet(), Quiet()  # of calls, which warn instead; and where another process says it


def warn(progress: Progress, message: str) -> None:
    """Shows a line that readers of the results should know: a Python warning if `progress` is QUIET."""
    if progress is not QUIET:
        progress.say(message)
        return
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(sys._getframe())]
    outermost = max(level for level, name in enumerate(names, 1) if name.partition(".")[0] == "extrapolate")
    warnings.warn(message.removeprefix("warning: "), stacklevel=outermost + 1)  # the call that the user wrote
