"""Several runs, one after another: opened, checked, locked, worked on. Some may fail; the end says which, and why."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from extrapolate.api.evaluated_runs import Runs, subjects
from extrapolate.errors import UserError, reason_of
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.keeping import keeping_rows
from extrapolate.evaluation.plans import left_out, lines_on
from extrapolate.folders import unique_names
from extrapolate.interop.foreign import ForeignRun
from extrapolate.machine.distributed import ALONE, Ranks
from extrapolate.progress import QUIET, Advance, Progress
from extrapolate.runs.run import Run

T = TypeVar("T")


class RunsFailed(RuntimeError):  # noqa: N818 (what failed are runs)
    """Some of several runs failed. What the others gave is kept with them, and in `evaluated`.

    failed: the reasons, by the runs' folders.
    """

    def __init__(self, evaluated: Any, failed: Mapping[Path, str]) -> None:
        told = "; ".join(f"{path}: {reason}" for path, reason in failed.items())
        what = "1 run" if len(failed) == 1 else f"{len(failed)} runs"
        super().__init__(f"{what} failed, and what the others gave is kept: {told}")
        self.evaluated, self.failed = evaluated, failed


@dataclass(frozen=True)
class Job(Generic[T]):
    """One run: what it is worked on with, such as its text, the extensions that apply to it, and its name in rows."""

    run: Run | ForeignRun
    given: T
    extensions: tuple[str, ...]
    name: str


class InTurn:
    """The runs that a call was given. If one of several fails, the others go on, unless several processes share them.

    left_out: a line for each extension that some of the runs are worked on without, and for each reason.
    """

    def __init__(self, runs: Runs, seq_len: int | None, progress: Progress, ranks: Ranks = ALONE) -> None:
        self.progress, self.ranks = progress, ranks
        self.failed: dict[Path, Exception] = {}
        self.left_out: list[str] = []
        self.found, damaged = ranks.in_turn(lambda: subjects(runs, seq_len, progress))
        self.goes_on = ranks.world_size == 1 and len(self.found) + len(damaged) > 1
        for path, error in damaged.items():
            with self._going_on(path):
                raise error

    def jobs(self, extensions: Sequence[str], opened: Callable[[Run | ForeignRun], T]) -> list[Job[T]]:
        """The runs that can be worked on at all. opened: gives what that needs, and raises what is wrong with a run.

        Raises UserError on an extension that is unknown, or applies to none of them.
        """
        ready: list[tuple[Run | ForeignRun, T]] = []
        for run in self.found:
            with self._going_on(run.path):
                ready.append((run, opened(run)))
        if not ready:
            raise next(iter(self.failed.values()))
        each, self.left_out = applying([run for run, _ in ready], extensions, self.progress)
        names = unique_names(run.path.resolve() for run, _ in ready)
        return [
            Job(run, given, mine, names[run.path.resolve()]) for (run, given), mine in zip(ready, each, strict=True)
        ]

    def work(
        self, jobs: Sequence[Job[T]], work: Callable[[Job[T], Advance], None], inputs: Sequence[float], what_stays: str
    ) -> None:
        """Works on each run while its folder is locked. inputs: how many each has, for the display; or none are known.

        what_stays: what is kept if the user stops it.
        """
        ends: list[float | None] = [*accumulate(inputs)] or [None] * len(jobs)
        done, last = 0.0, ""
        with self.progress.display("tokens", stopped=f"stopped; {what_stays}") as display:

            def advance(what: str, inputs: float) -> None:
                nonlocal done, last
                done = inputs + (done if ends[-1] is not None or what == last else 0.0)
                last = what
                display.update(what, done, ends[-1] if done else None)  # the clock begins with the first input

            for job, end in zip(jobs, ends, strict=True):
                locked = partial(keeping_rows, job.run, job.extensions, self.progress.say)
                with self._going_on(job.run.path), self.ranks.in_first(locked):
                    work(job, advance)
                done = done if end is None else end  # also of a run that failed on the way
        self.ranks.wait()

    def tell(self, evaluated: Any) -> None:
        """At the end. Raises RunsFailed, with what the others gave, if some failed."""
        if self.failed:
            reasons = {path: reason_of(error) for path, error in self.failed.items()}
            raise RunsFailed(evaluated, reasons) from next(iter(self.failed.values()))

    @contextlib.contextmanager
    def _going_on(self, path: Path) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self.goes_on:
                raise
            self.failed[path] = error
            self.progress.say(f"{path} failed: {reason_of(error)}")


def applying(
    runs: Sequence[AnyRun], extensions: Sequence[str], progress: Progress
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Of each run, the extensions that apply to it; and lines on what is left out, which `progress` says too.

    Raises UserError on an unknown extension, and on one that applies to none of the runs.
    """
    reasons = [left_out(run, run.build_model(), extensions) for run in runs]
    for text in extensions:
        if all(text in mine for mine in reasons):
            none = "" if len(runs) == 1 else f"{text} applies to none of these runs: "
            raise UserError(none + reasons[0][text])
    lines = lines_on({str(run.path): mine for run, mine in zip(runs, reasons, strict=True)})
    for line in lines:
        progress.say(line)
    return [tuple(text for text in extensions if text not in mine) for mine in reasons], lines


def table(rows: Sequence[Mapping[str, Any]], lines: Sequence[str], progress: Progress) -> pd.DataFrame:
    """The rows, with the lines on what is left out in `attrs["left_out"]`; also as warnings if `progress` is quiet."""
    found = pd.DataFrame(rows)
    found.attrs["left_out"] = list(lines)
    for line in lines if progress is QUIET else ():
        warnings.warn(line, stacklevel=5)  # the call that the user wrote: `public` and `decided` stand in between
    return found
