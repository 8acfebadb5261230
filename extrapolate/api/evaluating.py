"""The work of `xt.evaluate`: one run after another, by one process or by several that share the windows of each."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from extrapolate.api.in_turn import InTurn, Job, Runs
from extrapolate.api.own_class import with_specs
from extrapolate.api.training import opened_store
from extrapolate.data.store import Store
from extrapolate.evaluation import lengths
from extrapolate.evaluation import probes as probing
from extrapolate.evaluation.settings import EvaluationSettings, RunsOnText
from extrapolate.evaluation.text import few_documents
from extrapolate.machine.devices import device_of
from extrapolate.machine.distributed import ALONE, Ranks, check_devices, joined
from extrapolate.machine.limits import stay_within_quota
from extrapolate.machine.memory import keep_freed_memory
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
        turns, jobs = prepared(settings, runs, data, seq_len, progress, ranks)
        evaluated = Evaluated([], [], [], settings.protocols)

        def own(job: Job[Store]) -> EvaluationSettings:
            return replace(settings, extend=job.extensions)

        def with_speed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return rows if timed else [row | {"tokens_per_s": None} for row in rows]

        def work(job: Job[Store], advance: Advance) -> None:
            path, named = job.run.path, {"run": job.name}
            how: Any = dict(device=on, progress=advance, say=partial(warn, progress))
            passes = (lengths.evaluate(job.run, job.given, asked, **how) for asked in (own(job), own(job).halfway()))
            for rows, documents, targets in itertools.chain.from_iterable(passes):
                rows = with_speed(rows)
                if ranks.first:
                    kept.add_losses(path, rows, documents, targets)
                evaluated.rows.extend(row | named for row in rows)
            for rows in probing.evaluate(job.run, job.given, own(job), **how):
                rows = with_speed(rows)
                if ranks.first:
                    kept.add(path, PROBES, rows)
                evaluated.probe_rows.extend(row | named for row in rows)

        evaluated.left_out.extend(turns.left_out)
        inputs = [
            sum(part.expected_inputs(job.run, job.given, own(job)).total() for part in (lengths, probing))
            + lengths.expected_inputs(job.run, job.given, own(job).halfway()).total()
            for job in jobs
        ]
        turns.work(jobs, work, inputs, "what was evaluated before this setting is kept")
        turns.tell(evaluated)
        return evaluated


def prepared(
    settings: EvaluationSettings,
    runs: Runs,
    data: str | Path | Store | None,
    seq_len: int | None,
    progress: Progress,
    ranks: Ranks = ALONE,
) -> tuple[InTurn, list[Job[Store]]]:
    """The runs with their text, all of it checked. Raises UserError if something is wrong; see `evaluate_with`."""
    store = opened_store(data)
    turns = InTurn(runs, seq_len, progress, ranks, partial(lengths.check_settings, settings))
    jobs = turns.jobs_on_text(settings, store, lambda run, text: lengths.check_run(run, text, settings))
    told: dict[str, None] = {}
    for job in jobs:
        own = replace(settings, extend=job.extensions)
        for part in (lengths, probing):
            part.check(job.run, job.given, own)
        told |= dict.fromkeys(few_documents(own, job.given.split(settings.split), job.run.config.seq_len))
    for line in told:
        progress.say(line)
    return turns, jobs
