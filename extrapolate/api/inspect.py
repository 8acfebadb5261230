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

    from extrapolate.api.evaluated_runs import Runs
    from extrapolate.data.store import Store
    from extrapolate.interop.foreign import ForeignRun
    from extrapolate.runs.run import Run


@public(InspectionSettings, RunsOnText)
@decided
def inspect(runs: "Runs", *, progress: Progress = QUIET, **settings: Unpack[InspectionArguments]) -> "pd.DataFrame":
    """Measures how trained models use position and returns a row per quantity, layer, head and place.

    The rows are kept with each run too, in its inspections.parquet: docs/results.md has the columns, and
    docs/inspection.md explains every measurement. All numbers are of the last L/2 inputs of some windows of held-out
    text, the same inputs at every factor.

    runs: as for `evaluate`. measures: names of measurements, such as `attention` (default: all). factors: lengths N
    as multiples of L. extend: extensions; the run as it was trained is always inspected. windows: how many are read,
    at most (default: 16, or fewer where the longest have more than 2 048 tokens, but 4). split: `test` or `validation`.
    The rest is as for `evaluate`.

    Raises UserError if anything asked for cannot be measured, before any work is done, and where several processes
    were started together, which cannot share this work; RunsFailed at the end where some of several runs failed: the
    others are inspected, and the error has their rows in `evaluated`.
    """
    from dataclasses import replace

    from extrapolate import results
    from extrapolate.api.evaluated_runs import store_of
    from extrapolate.api.in_turn import InTurn, Job, table
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
    for job in jobs:
        inspection.check(job.run, job.given, replace(asked, extend=job.extensions))
    inputs = [inspection.expected_inputs(job.run, job.given, replace(asked, extend=job.extensions)) for job in jobs]
    turns.work(jobs, work, inputs, "the lengths before this one are kept")
    inspected = table(rows, turns.left_out, progress)
    turns.tell(inspected)
    return inspected
