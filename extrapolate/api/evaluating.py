"""The work of `xt.evaluate`: one run after another, by one process or by several that share the windows of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from extrapolate.api.own_class import with_specs
from extrapolate.api.run_loop import Job, RunLoop, Runs
from extrapolate.api.training import opened_store
from extrapolate.data.store import Store
from extrapolate.evaluation import lengths
from extrapolate.evaluation import probes as probing
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.settings import EvaluationSettings, RunsOnText
from extrapolate.evaluation.text import few_documents
from extrapolate.evaluation.work import S, Work, work_of
from extrapolate.machine.devices import device_of
from extrapolate.machine.distributed import ALONE, Ranks, check_devices, joined
from extrapolate.machine.limits import stay_within_quota
from extrapolate.machine.memory import keep_freed_memory
from extrapolate.model.language_model import LanguageModel
from extrapolate.progress import QUIET, SILENT, Advance, Progress, warn
from extrapolate.results import PROBES, kept
from extrapolate.specs.settings import flagged_fields


@dataclass(frozen=True)
class Evaluated:
    """The rows of losses and of probes that an evaluation gave, see `results.tables`.

    Runs have the shortest names that tell them apart. left_out: a line for each extension that some of the runs were
    evaluated without, and for each reason. protocols: as the rows have them.
    """

    rows: list[dict[str, Any]]
    probe_rows: list[dict[str, Any]]
    left_out: list[str]
    protocols: tuple[str, ...]


def evaluate_given(runs: Runs, given: Mapping[str, Any], progress: Progress) -> Evaluated:
    """`evaluate_with` the arguments of a public call."""
    opened = {one.name: given[one.name] for one in flagged_fields(RunsOnText) if given.get(one.name) is not None}
    return evaluate_with(EvaluationSettings.of(with_specs(given)), runs, **opened, progress=progress)


def evaluate_with(
    settings: EvaluationSettings,
    runs: Runs,
    *,
    device: str = "auto",
    data: str | Path | Store | None = None,
    seq_len: int | None = None,
    progress: Progress = QUIET,
    timed: bool = True,
) -> Evaluated:
    """Does what `evaluate` and `evaluate_probes` do, in one call.

    timed: keep the speed of the evaluation in the rows; False if other work runs at the same time.
    """
    keep_freed_memory()
    stay_within_quota()
    with joined("what was evaluated before this setting is kept: run the same command again") as ranks:
        on = device_of(device)
        check_devices(on)
        progress = progress if ranks.first else SILENT
        loop, jobs = prepared(settings, runs, data, seq_len, progress, ranks)
        evaluated = Evaluated([], [], list(loop.left_out), settings.protocols)
        there = {job.name: [part.there() for part in job.given] for job in jobs}

        def with_speed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return rows if timed else [row | {"tokens_per_s": None} for row in rows]

        def work(job: Job[list[Work[AnyRun]]], advance: Advance) -> None:
            path, named = job.run.path, {"run": job.name}
            how: Any = dict(device=on, progress=advance, say=partial(warn, progress))
            for part, known in zip(job.given, there[job.name], strict=True):
                on_text = zip(part.places(part.on_text), lengths.evaluate(part, there=known, **how), strict=True)
                for place, (rows, documents, targets) in on_text:
                    rows = with_speed(rows)
                    if ranks.first and rows:
                        kept.add_losses(path, rows, documents, targets)
                    evaluated.rows.extend(row | named for row in part.with_rows_there(rows, known, place))
                on_probes = zip(part.places(part.on_probes), probing.evaluate(part, there=known, **how), strict=True)
                for place, rows in on_probes:
                    rows = with_speed(rows)
                    if ranks.first:
                        kept.add(path, PROBES, rows)
                    evaluated.probe_rows.extend(row | named for row in part.with_rows_there(rows, known, place))

        inputs = [
            sum(part.inputs(part.items, known).total() for part, known in zip(job.given, there[job.name], strict=True))
            for job in jobs
        ]
        for job in jobs:
            if count := sum(part.count(known) for part, known in zip(job.given, there[job.name], strict=True)):
                progress.say(f"{job.run.path}: {count:,} rows are there already, and are not computed again")
        loop.work(jobs, work, inputs, "what was evaluated before this setting is kept")
        loop.tell(evaluated)
        return evaluated


def prepared(
    settings: EvaluationSettings,
    runs: Runs,
    data: str | Path | Store | None,
    seq_len: int | None,
    progress: Progress,
    ranks: Ranks = ALONE,
) -> tuple[RunLoop, list[Job[list[Work[AnyRun]]]]]:
    """The runs with their work, all of it checked: that of the settings, and that of half the budget.

    Raises UserError if something is wrong; see `evaluate_with`.
    """
    store = opened_store(data)
    loop = RunLoop(runs, seq_len, progress, ranks, partial(lengths.check_settings, settings))
    jobs = loop.jobs_on_text(settings, store, lambda run, text: lengths.check_run(run, text, settings))
    told: dict[str, None] = {}
    found: list[Job[list[Work[AnyRun]]]] = []
    for job in jobs:
        own = replace(settings, extend=job.extensions)
        found.append(Job(job.run, works(job.run, job.given, own), job.extensions, job.name))
        told |= dict.fromkeys(few_documents(own, job.given.split(settings.split), job.run.config.seq_len))
    for line in told:
        progress.say(line)
    return loop, found


def works(run: S, store: Store, settings: EvaluationSettings, model: LanguageModel | None = None) -> list[Work[S]]:
    """The work of an evaluation, and of the model of half the budget, after `lengths.check_settings` and `check_run`.

    model: see `work_of`. Raises UserError if a setting is invalid for the run or its text.
    """
    whole = work_of(run, store, settings, model)
    probing.check(whole)
    return [whole, work_of(run, store, settings.halfway(), model)]
