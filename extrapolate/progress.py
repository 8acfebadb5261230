"""What long work tells about its progress: one interface for the command line, notebooks and programs."""

from collections.abc import Callable
from typing import Protocol, Self

# Called as work goes on: what is being done, and how many inputs (tokens) were done since the last call.
Advance = Callable[[str, float], None]

# Called with one line for the user.
Say = Callable[[str], None]


def unseen(what: str, inputs: float) -> None:
    """Progress that nobody watches."""


class Display(Protocol):
    """One piece of work on display, from `with` to its end."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        """So much is done of the total; where that is None, of `what`, the part under way. A note goes along."""


class Progress(Protocol):
    """Who is told how far long work is, and what a user should know."""

    def say(self, message: str) -> None:
        """One line."""

    def display(self, unit: str, stopped: str = "stopped") -> Display:
        """A piece of work begins. `unit` is what is counted; `stopped` is said where the user stops it."""


class _NoDisplay:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        pass


class Quiet:
    """Tells nobody."""

    def say(self, message: str) -> None:
        """Nothing."""

    def display(self, unit: str, stopped: str = "stopped") -> Display:
        """Nothing."""
        return _NoDisplay()


QUIET = Quiet()
