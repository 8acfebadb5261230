"""xt.evaluate_tasks"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from extrapolate.api.settings import OpeningArguments
from extrapolate.errors import UserError
from extrapolate.evaluation.settings import OpenedRuns
from extrapolate.names import PRECISIONS, TASKS_TABLE
from extrapolate.progress import QUIET, Advance, Progress
from extrapolate.runs.trust import decided
from extrapolate.specs import did_you_mean
from extrapolate.specs.arguments import NUMBER, TEXT, WHOLE, check, path, several
from extrapolate.specs.settings import Flag, public

if TYPE_CHECKING:  # importing these takes seconds, and the command line reads the signature
    import pandas as pd

    from extrapolate.api.in_turn import Job, Runs
    from extrapolate.interop.foreign import ForeignRun
    from extrapolate.runs.run import Run

_WHAT = "What to ask"


@public(OpenedRuns)
@decided
def evaluate_tasks(
    runs: "Runs",
    tasks: str | Sequence[str],
    *,
    extend: Annotated[
        str | Sequence[str],
        Flag("an extension: pi, yarn:factor=8 + log-n; all; without-own; repeatable", _WHAT, whole=True),
    ] = (),
    length: Annotated[
        int | None,
        Flag("the most tokens that are read at once; longer texts lose their first", _WHAT, usual="as in training"),
    ] = None,
    shots: Annotated[int | None, Flag("examples before each question", _WHAT, usual="as the task says, or 0")] = None,
    limit: Annotated[
        float | None, Flag("the number of questions of each task; below 1, their share", _WHAT, usual="all")
    ] = None,
    include_path: Annotated[str | Path | None, Flag("a folder with your own tasks; their Python runs", _WHAT)] = None,
    data_dir: Annotated[
        str | Path | None, Flag("copies of data sets, each in a folder of its name on the Hub", _WHAT)
    ] = None,
    precision: Annotated[str, Flag(", ".join(PRECISIONS), "Machine")] = "fp32",
    progress: Progress = QUIET,
    **opening: Unpack[OpeningArguments],
) -> "pd.DataFrame":
    """Evaluates runs on tasks of lm-eval and returns a row per run, extension, task and metric.

    Each run also keeps its rows, in eval_tasks.parquet: docs/results.md describes the columns, docs/benchmarks.md the
    method.

    runs, extend, device, seq_len, trust_code: as for `evaluate`; the run as trained is always included. tasks: names of
    tasks or groups, such as `hellaswag` or `mmlu`, or patterns such as `mmlu_*`. length: the most tokens that a model
    reads at once, and the length that extensions are set for (default: the length of the training windows); longer
    texts lose their first tokens. shots: solved examples before each question (default: as the task says, or none).
    limit: the number of questions of each task, or their share if below 1 (default: all). include_path: a folder with
    your own tasks. data_dir: a folder with copies of data sets, each under its name on the Hub. precision: `fp32`,
    `bf16` or `int8`.

    Raises UserError if lm-eval, a task, its data or a run is missing, or a run cannot be evaluated at this length;
    RunsFailed at the end if some of several runs failed.
    """
    from extrapolate.interop import benchmarks

    benchmarks.check_installed()
    from extrapolate import results
    from extrapolate.api.in_turn import InTurn, table
    from extrapolate.evaluation.plans import extensions_to_evaluate, plan_for_texts
    from extrapolate.interop.benchmarks import Tasks
    from extrapolate.interop.lm_eval import RunLM  # lm-eval is optional

    check("precision", precision, TEXT)
    for parameter, value, kind in (("length", length, WHOLE), ("shots", shots, WHOLE), ("limit", limit, NUMBER)):
        if value is not None:
            check(parameter, value, kind)
    if precision not in PRECISIONS:
        raise UserError(f"unknown `precision='{precision}'`; {did_you_mean(precision, PRECISIONS)}")
    if shots is not None and shots < 0:
        raise UserError(f"`shots` must be 0 or more, not {shots}")
    if limit is not None and not 0 < limit < math.inf:
        raise UserError(f"`limit` must be above 0, not {limit:g}")
    extensions, names = several("extend", extend, TEXT), several("tasks", tasks, TEXT)
    given = {"include_path": include_path, "data_dir": data_dir}
    folders = [None if folder is None else path(name, folder) for name, folder in given.items()]

    def check_run(run: "Run | ForeignRun") -> None:
        results.check_grows(run.path / TASKS_TABLE, results.TASKS)
        run.checkpoints("last")
        run.build_model()

    # Raises what is wrong with the arguments before lm-eval and its data are read, which takes long.
    turns = InTurn(runs, opening.get("seq_len"), progress)
    jobs = turns.jobs(extensions, check_run)
    for job in jobs:
        at = job.run.config.trained_length if length is None else length
        model = job.run.build_model()
        for applied in extensions_to_evaluate(job.run, model, job.extensions).values():
            plan_for_texts(job.run, model, applied, at)
    progress.say("reading the tasks")
    loaded = Tasks.load(names, *folders)
    rows: list[dict[str, Any]] = []

    def work(job: "Job[None]", advance: Advance) -> None:
        for text, applied in extensions_to_evaluate(job.run, job.run.build_model(), job.extensions).items():
            lm = RunLM(
                job.run, length=length, extend=applied, precision=precision,
                device=opening.get("device") or "auto", advance=partial(advance, f"{job.run.name} {text}"),
            )  # fmt: skip
            part = list(benchmarks.rows(lm, text, loaded.questions(lm, shots, limit)))
            results.merge(job.run.path / TASKS_TABLE, part, results.TASKS)
            rows.extend(row | {"run": job.name} for row in part)

    turns.work(jobs, work, [], "what was asked before this extension is kept")
    asked = table(rows, turns.left_out, progress)
    turns.tell(asked)
    return asked
