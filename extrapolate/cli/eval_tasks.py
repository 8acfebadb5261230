"""extrapolate eval-tasks"""

import os
from typing import Annotated, Any

import typer

from extrapolate.api.evaluate_tasks import evaluate_tasks
from extrapolate.cli.command_of import command_of, listed
from extrapolate.cli.eval_lengths import RunPaths
from extrapolate.cli.flags import AsJson, CommandLine


@command_of(evaluate_tasks, panels=("What to ask", "Runs", "Machine"))
def eval_tasks(
    runs: RunPaths,
    tasks: Annotated[
        list[str], typer.Option(help="tasks or groups of lm-eval: hellaswag,mmlu,arc_challenge,arc_easy; repeatable")
    ],
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Ask trained models the benchmarks of lm-eval.

    It needs the package lm-eval. The rows are kept in each run's eval_tasks.parquet, and a report on the runs shows
    them.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # tqdm reads it once, when lm-eval, whose bars disturb ours, imports it
    from extrapolate.cli.render import print_json, print_table
    from extrapolate.reports import tasks as tables

    found = evaluate_tasks(runs, listed(",".join(tasks)), **given, progress=CommandLine())
    if as_json:
        print_json(found.astype(object).where(found.notna(), None).to_dict("records"))
        return
    for title, table in tables.printed(found):
        print_table(table, title)
