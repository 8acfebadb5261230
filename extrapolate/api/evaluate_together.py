"""The work of `xt.evaluate`: every run in turn, also where one fails; by one process, or several that share windows."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from extrapolate import results
from extrapolate.api.applying import applying
from extrapolate.api.evaluated_runs import Runs, store_of, subjects
from extrapolate.api.failures import Failures
from extrapolate.api.training import opened_store
from extrapolate.data.store import Store
from extrapolate.evaluation import lengths
from extrapolate.evaluation import probes as probing
from extrapolate.evaluation.keeping import keeping_rows
from extrapolate.evaluation.lengths import EvaluationSettings
from extrapolate.folders import unique_names
from extrapolate.interop.foreign import ForeignRun
from extrapolate.machine.devices import device_of
from extrapolate.machine.distributed import Ranks, check_devices
from extrapolate.names import DOCUMENTS_TABLE, PROBES_TABLE, TARGETS_TABLE, TEXT_TABLE
from extrapolate.progress import Advance, Progress
from extrapolate.runs.run import Run

Work = list[tuple[Run | ForeignRun, Store, EvaluationSettings]]


@dataclass(frozen=True)
class Evaluated:
    """What one evaluation found: rows of losses and of probes, as `evals.parquet` and `eval_probes.parquet` have them.

    A run's name is as long as it takes to tell the runs apart. left_out has a line for each extension that some of the
    runs were evaluated without, and for each reason.
    """

    rows: list[dict[str, Any]]
    probe_rows: list[dict[str, Any]]
    left_out: list[str]


class Together:
    """All processes evaluate the same settings, and share the windows of each; the first writes.

    A run that fails does not stop the others where one process works alone; several processes end together.
    timed: the rows have the speed of the evaluation.
    """

    def __init__(
        self, ranks: Ranks, settings: EvaluationSettings, device: str, timed: bool, progress: Progress
    ) -> None:
        self.ranks, self.settings, self.timed, self.progress = ranks, settings, timed, progress
        self.device = device_of(device)
        check_devices(self.device)
        self.evaluated = Evaluated([], [], [])
        self.failures = Failures(False, progress.say)

    def evaluate(self, runs: Runs, data: str | Path | Store | None, seq_len: int | None, trust_code: bool) -> Evaluated:
        """Everything. Raises RunsFailed at the end where some of several runs failed, and what failed where all did."""
        store = opened_store(data)
        found, damaged = self.ranks.in_turn(lambda: subjects(runs, seq_len, self.progress))
        self.failures.several = self.ranks.world_size == 1 and len(found) + len(damaged) > 1
        self.failures.note(damaged)
        work = self._with_their_extensions(self._with_stores(found, store, trust_code))
        for run, text, settings in work:
            lengths.check(run, text, settings)
            probing.check(run, text, settings)
        self._evaluate_all(work)
        self.ranks.wait()
        self.failures.tell(self.evaluated)
        return self.evaluated

    def _with_stores(
        self, runs: list[Run | ForeignRun], given: Store | None, trust_code: bool
    ) -> list[tuple[Run | ForeignRun, Store]]:
        """The runs that can be evaluated at all, each with its text."""
        work = []
        for run in runs:
            with self.failures.going_on(run.path):
                if trust_code and isinstance(run, Run):
                    run.trust_code()
                own = partial(store_of, run, self.settings, self.progress)
                store = self.ranks.in_turn(own) if given is None else given
                lengths.check_run(run, store, self.settings)
                work.append((run, store))
        self.failures.check_some_are_left(work)
        return work

    def _with_their_extensions(self, runs: list[tuple[Run | ForeignRun, Store]]) -> Work:
        """The runs, each with the extensions that apply to it."""
        extensions, lines = applying([run for run, _ in runs], self.settings.extensions, self.progress)
        self.evaluated.left_out.extend(lines)
        return [
            (run, store, replace(self.settings, extensions=mine))
            for (run, store), mine in zip(runs, extensions, strict=True)
        ]

    def _evaluate_all(self, work: Work) -> None:
        names = unique_names(run.path.resolve() for run, *_ in work)
        ends = [0.0]  # tokens, when each run is done
        for run, store, settings in work:
            inputs = [one.expected_inputs(run, store, settings) for one in (lengths, probing)]
            ends.append(ends[-1] + sum(inputs))
        done = 0.0
        stopped = "stopped; what was evaluated before this setting is kept"
        with self.progress.display("tokens", stopped=stopped) as display:

            def advance(what: str, inputs: float) -> None:
                nonlocal done
                done += inputs
                display.update(what, done, ends[-1])

            advance("evaluating", 0)
            for (run, store, settings), end in zip(work, ends[1:], strict=True):
                with self.failures.going_on(run.path):
                    self._evaluate_one(run, store, settings, names[run.path.resolve()], advance)
                done = end  # also of a run that failed on the way

    def _evaluate_one(
        self, run: Run | ForeignRun, store: Store, settings: EvaluationSettings, name: str, advance: Advance
    ) -> None:
        say = self.progress.say
        with self.ranks.in_first(partial(keeping_rows, run, settings.extensions, say)):
            for rows, documents, targets in lengths.evaluate(
                run, store, settings, device=self.device, progress=advance, say=say
            ):
                rows = self._as_timed(rows)
                if self.ranks.first:
                    results.merge(run.path / DOCUMENTS_TABLE, documents, results.EVAL_DOCUMENTS)
                    if settings.keep_losses or (run.path / TARGETS_TABLE).exists():
                        results.merge_columns(run.path / TARGETS_TABLE, targets, results.EVAL_TARGETS, rows, run.name)
                    results.merge(run.path / TEXT_TABLE, rows, results.EVALS)
                self.evaluated.rows.extend(row | {"run": name} for row in rows)
            for rows in probing.evaluate(run, store, settings, device=self.device, progress=advance, say=say):
                rows = self._as_timed(rows)
                if self.ranks.first:
                    results.merge(run.path / PROBES_TABLE, rows, results.PROBES)
                self.evaluated.probe_rows.extend(row | {"run": name} for row in rows)

    def _as_timed(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return rows if self.timed else [row | {"tokens_per_s": None} for row in rows]
