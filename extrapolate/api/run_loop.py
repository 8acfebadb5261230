"""Opens, checks and locks the runs of a call, and works on one after another. Some may fail."""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from extrapolate.api.tokenize import DEFAULT_STORE, store_with
from extrapolate.data.build import StoreSettings
from extrapolate.data.store import Store
from extrapolate.data.tokenizer import HUB
from extrapolate.errors import UserError, reason_of
from extrapolate.evaluation.keeping import keeping_rows
from extrapolate.evaluation.plans import left_out, lines_on
from extrapolate.evaluation.settings import Lengths
from extrapolate.folders import join_names, unique_names
from extrapolate.interop import foreign
from extrapolate.interop.foreign import ForeignRun
from extrapolate.interop.imported import import_checkpoint
from extrapolate.interop.imported import lengths_of as own_lengths
from extrapolate.machine.distributed import ALONE, Ranks
from extrapolate.progress import Advance, Progress, warn
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import Run, find_runs
from extrapolate.specs.arguments import several

Runs = str | Path | Run | ForeignRun | Iterable[str | Path | Run | ForeignRun]
T = TypeVar("T")


class RunsFailed(RuntimeError):  # noqa: N818 (what failed are runs)
    """Some of several runs failed. The rows of the others are kept with them, and in `evaluated`.

    failed: the reasons, by the runs' folders.
    """

    def __init__(self, evaluated: Any, failed: Mapping[Path, str]) -> None:
        told = "; ".join(f"{path}: {reason}" for path, reason in failed.items())
        what = "1 run" if len(failed) == 1 else f"{len(failed)} runs"
        super().__init__(f"{what} failed, and what the others gave is kept: {told}")
        self.evaluated, self.failed = evaluated, failed


@dataclass(frozen=True)
class Job(Generic[T]):
    """One run, with what the work needs, such as its text, the extensions that apply to it, and its name in rows."""

    run: Run | ForeignRun
    given: T
    extensions: tuple[str, ...]
    name: str


class RunLoop:
    """The runs that a call was given. If one of several fails, the others continue, unless processes share the runs.

    left_out: a line for each extension that does not apply to some of the runs, and for each reason.
    """

    def __init__(
        self,
        runs: Runs,
        seq_len: int | None,
        progress: Progress,
        ranks: Ranks = ALONE,
        check: Callable[[int], None] = lambda seq_len: None,
    ) -> None:
        """check: raises if a setting is invalid for a training length, before anything is imported or tokenised."""
        self.progress, self.ranks = progress, ranks
        self.failed: dict[Path, Exception] = {}
        self.left_out: list[str] = []
        self.found, damaged = ranks.in_turn(lambda: _subjects(runs, seq_len, progress, check))
        self.goes_on = ranks.world_size == 1 and len(self.found) + len(damaged) > 1
        for path, error in damaged.items():
            with self._going_on(path):
                raise error

    def jobs(self, extensions: Sequence[str], opened: Callable[[Run | ForeignRun], T]) -> list[Job[T]]:
        """The runs that can be worked on. opened: returns what the work needs, and raises if something is wrong.

        Raises UserError if an extension is unknown, or applies to none of the runs.
        """
        ready: list[tuple[Run | ForeignRun, T]] = []
        for run in self.found:
            with self._going_on(run.path):
                ready.append((run, opened(run)))
        if not ready:
            raise next(iter(self.failed.values()))
        reasons = [left_out(run, run.build_model(), extensions) for run, _ in ready]
        for text in extensions:
            if all(text in mine for mine in reasons):
                none = "" if len(ready) == 1 else f"{text} applies to none of these runs: "
                raise UserError(none + reasons[0][text])
        self.left_out = lines_on({str(run.path): mine for (run, _), mine in zip(ready, reasons, strict=True)})
        for line in self.left_out:
            warn(self.progress, line)
        names = unique_names(run.path.resolve() for run, _ in ready)
        return [
            Job(
                run,
                given,
                tuple(text for text in extensions if text not in mine),
                names[run.path.resolve()],
            )
            for (run, given), mine in zip(ready, reasons, strict=True)
        ]

    def jobs_on_text(
        self, settings: Lengths, store: Store | None, check: Callable[[Run | ForeignRun, Store], None]
    ) -> list[Job[Store]]:
        """As `jobs`, with the text of each run: `store`, or its own. check: raises if something is wrong with them.

        Says which runs are evaluated on text that they were not trained on.
        """

        def text_of(run: Run | ForeignRun) -> Store:
            own = partial(_store_of, run, self.progress)
            text = self.ranks.in_turn(own) if store is None else store
            check(run, text)
            return text

        jobs = self.jobs(settings.extend, text_of)
        others = [
            job
            for job in jobs
            if isinstance(job.run.config, TrainedConfig) and job.given.corpus_hash != job.run.config.data.corpus_hash
        ]
        if others:
            warn(
                self.progress,
                f"{others[0].given.path} is not the text that {join_names([job.run.path for job in others])} learned "
                "from: nothing checks that none of its held-out documents is in both",
            )
        return jobs

    def work(
        self, jobs: Sequence[Job[T]], work: Callable[[Job[T], Advance], None], inputs: Sequence[float], what_stays: str
    ) -> None:
        """Works on each run while its folder is locked.

        inputs: the inputs of each, for the display; empty if not known. what_stays: what is kept on Ctrl-C, in words.
        """
        ends: list[float | None] = [*accumulate(inputs)] or [None] * len(jobs)
        done, last, lost = 0.0, "", [0.0, 0.0]
        with self.progress.display("tokens", stopped=f"stopped; {what_stays}") as display:

            def advance(what: str, inputs: float, loss: float = math.nan) -> None:
                nonlocal done, last, lost
                done = inputs + (done if ends[-1] is not None or what == last else 0.0)
                lost = lost if what == last else [0.0, 0.0]
                lost = lost if math.isnan(loss) else [lost[0] + inputs * loss, lost[1] + inputs]
                last = what
                note = f"loss {lost[0] / lost[1]:.3f}" if lost[1] else ""
                display.update(what, done, ends[-1] if done else None, note)  # the clock starts with the first input

            for job, end in zip(jobs, ends, strict=True):
                locked = partial(keeping_rows, job.run, job.extensions, partial(warn, self.progress))
                with self._going_on(job.run.path), self.ranks.in_first(locked):
                    work(job, advance)
                done = done if end is None else end  # a run that failed may have stopped before
        self.ranks.wait()

    def tell(self, evaluated: Any) -> None:
        """Raises RunsFailed, with what the others gave, if some failed."""
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


def table(rows: Sequence[Mapping[str, Any]], lines: Sequence[str]) -> pd.DataFrame:
    """The rows, with `lines` in `attrs["left_out"]`."""
    found = pd.DataFrame(rows)
    found.attrs["left_out"] = list(lines)
    return found


def _subjects(
    runs: Runs, seq_len: int | None, progress: Progress, check: Callable[[int], None]
) -> tuple[list[Run | ForeignRun], dict[Path, UserError]]:
    """The runs in folders, imported checkpoints and models of other libraries; and the errors of those that cannot be
    opened."""
    named = several("runs", runs, ((str, Path, Run, ForeignRun), "a run or a folder"))
    if not named:
        raise UserError("name at least one run, or a folder of runs")
    if seq_len is not None and not any(str(one).startswith(HUB) for one in named):
        raise UserError("`seq_len` is for hf: checkpoints: a run has the training length that it was trained at")
    for one in named:
        if str(one).startswith(HUB):
            check(seq_len or own_lengths(str(one).removeprefix(HUB))[0])
    models: list[ForeignRun] = []
    paths: list[Path] = []
    for one in named:
        file, _, function = str(one).rpartition(":")
        if isinstance(one, ForeignRun):
            models.append(one)
        elif isinstance(one, Run):
            paths.append(one.path)
        elif str(one).startswith(HUB):
            paths.append(imported(str(one), seq_len, progress))
        elif file.endswith(".py") and not Path(one).exists():  # a folder of that name is a folder
            models.append(foreign.loaded(Path(file), function))
        else:
            paths.append(Path(one))
    found, damaged = _finished(paths, progress)
    subjects: list[Run | ForeignRun] = [*found, *models]
    for subject in subjects:
        check(subject.config.seq_len)
    return subjects, damaged


def imported(name: str, seq_len: int | None, progress: Progress) -> Path:
    """Imports the checkpoint `hf:NAME_OR_FOLDER` as a run. Raises UserError if it cannot be imported."""
    progress.say(f"reading {name}")
    run = import_checkpoint(name.removeprefix(HUB), seq_len)
    extension = f", {run.config.extension}" if run.config.extension else ""
    seq_len, (_, longest) = run.config.seq_len, own_lengths(name.removeprefix(HUB))
    progress.say(f"{name} is {run.path}: training length {seq_len}{extension}")
    if longest > seq_len:
        besides = " besides its own" if extension else ""
        progress.say(
            f"its config.json says {longest:,} tokens: up to there, which is {longest / seq_len:g}x here, extensions"
            f"{besides} can only cost"
        )
    for note in run.special_tokens.notes:
        progress.say(note)
    return run.path


def _finished(paths: list[Path], progress: Progress) -> tuple[list[Run], dict[Path, UserError]]:
    """The runs at and below folders, without those that have no final weights, unless they were named themselves."""
    named = {path.resolve() for path in paths}
    found, others, unsearched, damaged = find_runs(paths)
    for what in unsearched:
        warn(progress, what)
    if others:
        warn(
            progress,
            f"left out, for they are not runs of extrapolate: {join_names(others)}; evaluate them as hf:FOLDER",
        )
    left_out = [run for run in found if not run.finished and run.path.resolve() not in named]
    if not left_out or len(left_out) == len(found):
        return found, damaged
    if foreigners := [run.path for run in left_out if run.foreign]:
        warn(progress, f"left out, for another library runs their models: {join_names(foreigners)}; evaluate the file")
    if unfinished := [run.path for run in left_out if not run.foreign]:
        warn(progress, f"left out, for their training is not finished: {join_names(unfinished)}")
    return [run for run in found if run not in left_out], damaged


def _store_of(run: Run | ForeignRun, progress: Progress) -> Store:
    """The store that a run was trained on; for an imported run, one for its tokenizer, which is made on first use.

    Raises UserError if that store holds other text now.
    """
    if isinstance(run.config, TrainedConfig):
        data = run.config.data
        store = Store.open(Path(data.path))
        if store.corpus_hash != data.corpus_hash:
            raise UserError(
                f"{run.path} was trained on corpus {data.corpus_hash}, and {data.path} is {store.corpus_hash} now; "
                "name the token store that it is to be evaluated on with `data`"
            )
        return store
    if isinstance(run, Run):
        run.with_weights()  # raises before a store is made for nothing
    digest = hashlib.sha256(run.tokenizer.to_str().encode()).hexdigest()[:8]
    default = DEFAULT_STORE.with_name(f"{DEFAULT_STORE.name}-{digest}")
    if default.exists():
        return Store.open(default)
    progress.say(
        f"no `data` is given: tokenising this Python's standard library into {default}, with the tokenizer of "
        f"{run.path}"
    )
    return store_with(StoreSettings(tokenizer=str(run.path / "tokenizer.json")), default, progress)
