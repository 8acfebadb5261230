"""xt.inspect"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import results
from extrapolate.api.applying import applying, table
from extrapolate.api.arguments import NUMBER, TEXT, WHOLE, check, several
from extrapolate.api.evaluated_runs import Runs, store_of, subjects
from extrapolate.api.failures import Failures
from extrapolate.api.training import opened_store
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.evaluation.keeping import keeping_rows
from extrapolate.folders import unique_names
from extrapolate.inspection import inspection
from extrapolate.inspection.inspection import InspectionSettings
from extrapolate.machine.devices import device_of
from extrapolate.machine.distributed import world_size
from extrapolate.names import INSPECTIONS_TABLE
from extrapolate.progress import QUIET, Progress
from extrapolate.runs.run import Run


def inspect(
    runs: Runs,
    *,
    measures: str | Sequence[str] = (),
    factors: Sequence[float] = (1, 2, 4, 8, 16),
    extend: str | Sequence[str] = (),
    windows: int | None = None,
    split: str = "test",
    device: str = "auto",
    data: str | Path | Store | None = None,
    seq_len: int | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> pd.DataFrame:
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
    if world_size() > 1:
        raise UserError("runs are inspected by one process: start it without torchrun")
    if windows is not None:
        check("windows", windows, WHOLE)
    settings = InspectionSettings(
        factors=several("factors", factors, NUMBER),
        extensions=several("extend", extend, TEXT),
        measures=tuple(dict.fromkeys(several("measures", measures, TEXT))),
        windows=windows,
        split=split,
    )
    store = opened_store(data)
    found, damaged = subjects(runs, seq_len, progress)
    failures = Failures(len(found) + len(damaged) > 1, progress.say)
    failures.note(damaged)
    opened = []
    for run in found:
        with failures.going_on(run.path):
            if trust_code and isinstance(run, Run):
                run.trust_code()
            text = store_of(run, settings.evaluation(), progress) if store is None else store
            inspection.check_run(run, text, settings)
            opened.append((run, text))
    failures.check_some_are_left(opened)
    extensions, left_out = applying([run for run, _ in opened], settings.extensions, progress)
    work = [
        (run, text, replace(settings, extensions=mine)) for (run, text), mine in zip(opened, extensions, strict=True)
    ]
    for run, text, mine in work:
        inspection.check(run, text, mine)
    names = unique_names(run.path.resolve() for run, *_ in work)
    ends = list(accumulate(inspection.expected_inputs(*one) for one in work))  # of each run
    done = 0.0
    rows: list[dict[str, Any]] = []
    with progress.display("tokens", stopped="stopped; the lengths before this one are kept") as display:

        def advance(what: str, inputs: float) -> None:
            nonlocal done
            done += inputs
            display.update(what, done, ends[-1])

        for (run, text, mine), end in zip(work, ends, strict=True):
            kept = keeping_rows(run, mine.extensions, progress.say)
            with failures.going_on(run.path), kept:
                for part in inspection.inspect(run, text, mine, device=device_of(device), progress=advance):
                    results.merge(run.path / INSPECTIONS_TABLE, part, results.INSPECTIONS)
                    rows += [row | {"run": names[run.path.resolve()]} for row in part]
            done = end  # also of a run that failed on the way
    inspected = table(rows, left_out, progress)
    failures.tell(inspected)
    return inspected
