"""xt.inspect"""

from typing import TYPE_CHECKING, Any, Unpack

from extrapolate.api.settings import InspectionArguments
from extrapolate.errors import UserError
from extrapolate.evaluation.settings import RunsOnText
from extrapolate.inspection.settings import InspectionSettings
from extrapolate.progress import QUIET, Advance, Progress
from extrapolate.runs.trust import decided
from extrapolate.specs.settings import public, settings_of

if TYPE_CHECKING:  # importing these takes seconds, and the command line reads the signature
    import pandas as pd

    from extrapolate.api.in_turn import Runs
    from extrapolate.data.store import Store
    from extrapolate.interop.foreign import ForeignRun
    from extrapolate.runs.run import Run


@public(InspectionSettings, RunsOnText)
@decided
def inspect(runs: "Runs", *, progress: Progress = QUIET, **settings: Unpack[InspectionArguments]) -> "pd.DataFrame":
    """Measures how trained models use position and returns a row per quantity, layer, head and place.

    Each run also keeps its rows, in inspections.parquet: docs/results.md describes the columns, and docs/inspection.md
    every measurement. All numbers are of the last L/2 inputs of some windows of held-out text, which are the same
    inputs at every factor.

    runs: as for `evaluate`. measures: names of measurements, such as `attention` (default: all). factors: lengths N as
    multiples of L. extend: extensions; the run as trained is always included. windows: the maximum number of windows
    (default: 16, or fewer if the longest have more than 2,048 tokens, but at least 4). split: `test` or `validation`.
    Other arguments are those of `evaluate`.

    Raises UserError before starting if a setting is invalid, or under torchrun, which cannot share this work. If some
    of several runs fail, the others are inspected, and RunsFailed is raised at the end, with their rows in `evaluated`.
    """
    from dataclasses import replace

    from extrapolate import results
    from extrapolate.api.in_turn import InTurn, Job, say_other_text, store_of, table
    from extrapolate.api.training import opened_store
    from extrapolate.inspection import inspection
    from extrapolate.machine.devices import device_of
    from extrapolate.machine.distributed import world_size
    from extrapolate.names import INSPECTIONS_TABLE

    if world_size() > 1:
        raise UserError("runs are inspected by one process: start it without torchrun")
    asked = settings_of(InspectionSettings, settings)
    store, device = opened_store(settings.get("data")), device_of(settings.get("device") or "auto")
    turns = InTurn(runs, settings.get("seq_len"), progress)
    rows: list[dict[str, Any]] = []

    def text_of(run: "Run | ForeignRun") -> "Store":
        text = store_of(run, asked.factors, progress) if store is None else store
        inspection.check_run(run, text, asked)
        return text

    def work(job: "Job[Store]", advance: Advance) -> None:
        own = replace(asked, extend=job.extensions)
        for part in inspection.inspect(job.run, job.given, own, device=device, progress=advance):
            results.merge(job.run.path / INSPECTIONS_TABLE, part, results.INSPECTIONS)
            rows.extend(row | {"run": job.name} for row in part)

    jobs = turns.jobs(asked.extend, text_of)
    say_other_text(((job.run, job.given) for job in jobs), progress)
    for job in jobs:
        inspection.check(job.run, job.given, replace(asked, extend=job.extensions))
    inputs = [inspection.expected_inputs(job.run, job.given, replace(asked, extend=job.extensions)) for job in jobs]
    turns.work(jobs, work, inputs, "the lengths before this one are kept")
    inspected = table(rows, turns.left_out, progress)
    turns.tell(inspected)
    return inspected
