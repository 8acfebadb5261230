"""xt.evaluate_tasks"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import results
from extrapolate.api.applying import applying, table
from extrapolate.api.arguments import NUMBER, TEXT, WHOLE, check, path, several
from extrapolate.api.evaluated_runs import Runs, subjects
from extrapolate.errors import UserError
from extrapolate.evaluation.keeping import keeping_rows
from extrapolate.evaluation.plans import extensions_to_evaluate, plan_for_texts
from extrapolate.folders import unique_names
from extrapolate.interop import benchmarks
from extrapolate.interop.benchmarks import Tasks
from extrapolate.names import PRECISIONS, TASKS_TABLE
from extrapolate.progress import QUIET, Progress
from extrapolate.runs.run import Run
from extrapolate.specs import did_you_mean


def evaluate_tasks(
    runs: Runs,
    tasks: str | Sequence[str],
    *,
    extend: str | Sequence[str] = (),
    length: int | None = None,
    shots: int | None = None,
    limit: float | None = None,
    include_path: str | Path | None = None,
    data_dir: str | Path | None = None,
    precision: str = "fp32",
    device: str = "auto",
    seq_len: int | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> pd.DataFrame:
    """Evaluates runs on tasks of lm-eval and returns a row per run, extension, task and metric.

    The rows are kept with each run too, in its eval_tasks.parquet: docs/results.md has the columns, and
    docs/benchmarks.md says what is done.

    runs, extend, device, seq_len, trust_code: as for `evaluate`; the run as it was trained is always asked. tasks:
    names of tasks or of groups, such as `hellaswag` or `mmlu`, or patterns of them, `mmlu_*`. length: the most tokens
    that a model reads at once, and the length that extensions are set for (default: the length of the training
    windows); of a longer text the first tokens are cut off. shots: examples before each question (default: as the task
    says, or none). limit: so many questions of each task, or below 1 this share of them (default: all). include_path:
    a folder with tasks of one's own. data_dir: a folder with copies of data sets, each under its name on the Hub.
    precision: `fp32`, `bf16` or `int8`.

    Raises UserError if lm-eval, a task, its data or a run is missing, or a run cannot be asked at this length.
    """
    benchmarks.check_installed()
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
    found, damaged = subjects(runs, seq_len, progress)
    for error in damaged.values():
        raise error
    for run in found:
        if trust_code and isinstance(run, Run):
            run.trust_code()
    # Everything that can be refused is, before lm-eval and its data are read.
    each, left_out = applying(found, extensions, progress)
    asked = []
    for run, mine in zip(found, each, strict=True):
        results.check_grows(run.path / TASKS_TABLE, results.TASKS)
        run.checkpoints("last")
        model = run.build_model()
        at = run.config.trained_length if length is None else length
        for text, applied in extensions_to_evaluate(run, model, mine).items():
            plan_for_texts(run, model, applied, at)
            asked.append((run, mine, text, applied))
    progress.say("reading the tasks")
    loaded = Tasks.load(names, *folders)
    called = unique_names(run.path.resolve() for run in found)
    rows: list[dict[str, Any]] = []
    with progress.display("tokens", stopped="stopped; what was asked before this extension is kept") as display:
        for run, mine, text, applied in asked:
            done = 0

            def advance(inputs: int, what: str = f"{run.name} {text}") -> None:
                nonlocal done
                done += inputs
                display.update(what, done)

            with keeping_rows(run, mine, progress.say):
                lm = RunLM(run, length=length, extend=applied, precision=precision, device=device, advance=advance)
                part = list(benchmarks.rows(lm, text, loaded.questions(lm, shots, limit)))
                results.merge(run.path / TASKS_TABLE, part, results.TASKS)
            rows += [row | {"run": called[run.path.resolve()]} for row in part]
    return table(rows, left_out, progress)
