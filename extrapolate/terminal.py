"""Progress on stderr, with rate and time left: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any, Self

PLAIN_EVERY_S = 5.0
PLAIN_LAST_S = 1.0  # shorter work needs no line
# The total time is estimated after RATE_AFTER_S and RATE_AFTER_SHARE of the work, because starting may take most of the
# time before, or after RATE_AT_LAST_S. It is not shown if less than LONG_S is left.
RATE_AFTER_S, RATE_AFTER_SHARE, RATE_AT_LAST_S, LONG_S = 3.0, 0.005, 30.0, 10.0


class Terminal:
    """Shows the progress of a call on stderr: a bar in a terminal, plain lines elsewhere."""

    def say(self, message: str) -> None:
        """Shows a line."""
        say(message)

    def display(self, unit: str, stopped: str = "stopped") -> "ProgressBar":
        """Starts a piece of work. `unit` is what is counted; `stopped` is shown on Ctrl-C."""
        return ProgressBar(unit, stopped)


class ProgressBar:
    """Shows the progress of one piece of work. `unit` is what is counted; `stopped` is added to KeyboardInterrupt."""

    def __init__(self, unit: str, stopped: str = "stopped") -> None:
        self.unit, self.stopped = unit, stopped
        self._counted, self._began, self._first, self._last_line = "", 0.0, 0.0, time.monotonic()
        self._told = False
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            texts = ("{task.description}", "{task.fields[note]}")
            first, last = (TextColumn(text, markup=False) for text in texts)  # names can look like markup
            columns = (first, BarColumn(), last)
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=None, note="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if isinstance(error[1], KeyboardInterrupt):
            error[1].add_note(self.stopped)

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        """Updates the display. `what` is the present part of the work.

        With a total, `done`, `total` and the time left are about the whole work; without one, `done` is about this part
        only.
        """
        now = time.monotonic()
        counted = what if total is None else "the whole"
        if counted != self._counted:
            self._counted, self._began, self._first = counted, now, done
        rate = (done - self._first) / (now - self._began) if now > self._began else 0.0
        left = (total - done) / rate if total and rate else None
        took, share_done = now - self._began, (done - self._first) / total if total else 0.0
        known = took >= RATE_AFTER_S and (share_done >= RATE_AFTER_SHARE or took >= RATE_AT_LAST_S)
        if left is not None and not self._told and known:
            self._told = True
            if left >= LONG_S:
                (say if self._bar is None else self._bar.console.print)(f"this takes about {duration(left)}")
        share = f"{done:,.0f} {self.unit}" if total is None else f"{100 * done / total:.0f}%"
        parts = [share, note, f"{rate:,.0f} {self.unit}/s" if rate >= 1 else ""]
        parts.append("" if left is None else f"{duration(left)} left")
        text = "  ".join(part for part in parts if part)
        if self._bar is not None:
            self._bar.update(
                self._task,
                description=escape_unprintable(what),
                completed=done,
                total=total,
                note=escape_unprintable(text),
            )
        elif now - self._last_line >= (PLAIN_LAST_S if done == total else PLAIN_EVERY_S):
            self._last_line = now
            say(f"{what}: {text}")


def duration(seconds: float) -> str:
    """`45 s`, `7 min`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def escape_unprintable(text: str) -> str:
    r"""Escapes unprintable characters as in Python: an escape character is `\x1b`, a new line `\n`.

    So names and messages from elsewhere cannot move the cursor or change colours.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(message: str) -> None:
    """Prints a line on stderr."""
    print(escape_unprintable(message), file=sys.stderr, flush=True)
