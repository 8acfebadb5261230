"""Progress on stderr: a bar in a terminal, plain lines elsewhere; with rate and time left."""

import sys
import time
from types import TracebackType
from typing import Any, Self

PLAIN_EVERY_S = 5.0
PLAIN_LAST_S = 1.0  # what is done sooner needs no line


class Progress:
    """Shows one thing at a time. `unit` is what `done` and `total` count; `stopped` is said on Ctrl-C."""

    def __init__(self, unit: str, stopped: str = "stopped") -> None:
        self.unit, self.stopped = unit, stopped
        self._what, self._began, self._first, self._last_line = "", 0.0, 0, time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(compact=True),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        if kind is KeyboardInterrupt:
            say(self.stopped)

    def update(self, what: str, done: int, total: int | None = None, note: str = "") -> None:
        """So much of `what` is done; None where the total is not known."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._first = what, now, done
            if self._bar is not None:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(what, total=total, note="")
        rate = (done - self._first) / (now - self._began) if now > self._began else 0.0
        parts = [note, f"{rate:,.0f} {self.unit}/s"] if rate >= 1 else [note]
        text = "  ".join(part for part in parts if part)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, note=text)
        elif now - self._last_line >= (PLAIN_LAST_S if done == total else PLAIN_EVERY_S):
            self._last_line = now
            share = f"{done:,} {self.unit}" if total is None else f"{100 * done / total:.0f}%"
            left = f"  {(total - done) / rate:.0f} s left" if total and rate else ""
            say(f"{what}: {share}  {text}{left}")


def say(message: str) -> None:
    """One line on stderr."""
    print(message, file=sys.stderr, flush=True)
