"""Several runs of which some fail: the others go on, and at the end it is said what failed, and why."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from extrapolate.errors import reason_of


class RunsFailed(RuntimeError):  # noqa: N818 (what failed are runs)
    """Some of several runs failed. What the others gave is kept with them, and in `evaluated`.

    failed: the reasons, by the runs' folders.
    """

    def __init__(self, evaluated: Any, failed: Mapping[Path, str]) -> None:
        told = "; ".join(f"{path}: {reason}" for path, reason in failed.items())
        what = "1 run" if len(failed) == 1 else f"{len(failed)} runs"
        super().__init__(f"{what} failed, and what the others gave is kept: {told}")
        self.evaluated, self.failed = evaluated, failed


class Failures:
    """What failed so far. several: whether there are other runs, which go on; say: is told at once what failed."""

    def __init__(self, several: bool, say: Callable[[str], None]) -> None:
        self.several, self.say = several, say
        self.failed: dict[Path, Exception] = {}

    @contextlib.contextmanager
    def going_on(self, path: Path) -> Iterator[None]:
        """Where one of several runs fails, the others go on."""
        try:
            yield
        except Exception as error:
            if not self.several:
                raise
            self.failed[path] = error
            self.say(f"{path} failed: {reason_of(error)}")

    def note(self, damaged: Mapping[Path, Exception]) -> None:
        """Runs that could not be opened."""
        for path, error in damaged.items():
            with self.going_on(path):
                raise error

    def check_some_are_left(self, work: Sequence[Any]) -> None:
        """Raises what failed first, where no run can be worked on at all."""
        if not work:
            raise next(iter(self.failed.values()))

    def tell(self, evaluated: Any) -> None:
        """At the end. Raises RunsFailed, with what the others gave, where some failed."""
        if self.failed:
            reasons = {path: reason_of(error) for path, error in self.failed.items()}
            raise RunsFailed(evaluated, reasons) from next(iter(self.failed.values()))
