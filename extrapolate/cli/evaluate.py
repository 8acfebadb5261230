"""extrapolate eval-lengths, extrapolate eval-tasks and extrapolate inspect"""

import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from extrapolate.api import evaluate as calls
from extrapolate.cli.flags import AsJson, CommandLine, DryRun, command_of, in_flags, split_list
from extrapolate.terminal import say

if TYPE_CHECKING:
    import pandas as pd

    from extrapolate.api.estimating import Estimate
    from extrapolate.api.evaluating import Evaluated

T = TypeVar("T")
RunPaths = Annotated[list[Path], typer.Argument(help="runs, folders of them, hf:NAME_OR_FOLDER, or my_model.py:load")]
FEW = 4  # runs that are named one by one


@command_of(calls.evaluate_all, panels=("What to evaluate", "Text", "Runs", "Machine"))
def eval_lengths(runs: RunPaths, dry_run: DryRun = False, as_json: AsJson = False, **given: Any) -> None:
    """Evaluate runs at several lengths.

    Each run is evaluated as trained and with the extensions that apply to it, and keeps the rows in its folder
    results/; rows that are there already are not computed again. A run that fails does not stop the others: the command
    says why, and ends with exit code 1.

    hf:NAME_OR_FOLDER is a Hugging Face checkpoint of a kind that docs/checkpoints.md lists: it becomes the run
    ckpt/hf-NAME.
    my_model.py:load is a function in your file that returns a model of another library: see docs/checkpoints.md.
    """
    if dry_run:
        _show_estimate(calls.estimate_evaluation(runs, progress=CommandLine(), **given), as_json)
        return
    _show(partial(calls.evaluate_all, runs, **given), partial(_show_evaluated, as_json=as_json))
    say(f"make a report with: extrapolate report {_named(runs)}")


def _show(call: Callable[..., T], show: Callable[[T], None]) -> None:
    """Shows what a call returns. If some of several runs failed, shows that of the others, and fails."""
    from extrapolate.api.run_loop import RunsFailed

    try:
        found = call(progress=CommandLine())
    except RunsFailed as failure:
        show(failure.evaluated)
        raise
    show(found)


def _show_estimate(found: "Estimate", as_json: bool) -> None:
    """Prints the rows as JSON, or a table, and what to lower for an hour."""
    from extrapolate.cli.render import print_json, print_line, print_table, records
    from extrapolate.terminal import duration

    if as_json:
        print_json(records(found.rows))
        return
    shown = found.rows.assign(
        tokens=[f"{count:,}" for count in found.rows["tokens"]],
        targets=[f"{count:,}" for count in found.rows["targets"]],
        documents=["" if count != count else f"{count:,.0f}" for count in found.rows["documents"].astype(float)],
        time=[duration(seconds) for seconds in found.rows["seconds"]],
        memory=["n/a" if mib != mib else f"{mib / 1024:.1f} GiB" for mib in found.rows["peak_mib"].astype(float)],
    ).drop(columns=["seconds", "peak_mib"])
    print_table(shown, f"about {duration(found.seconds)} on {found.device}", names=3)
    if found.lower:
        told = [f"`{name}={value!r}`" if value else f"no `{name}`" for name, value in found.lower.items()]
        print_line(in_flags(f"with {', '.join(told)}: about {duration(found.lower_s)}"))


def _named(runs: list[Path]) -> str:
    """The arguments for `report`: imported checkpoints are runs in ckpt/ by now."""
    places = list(dict.fromkeys(str(run) if run.is_dir() else "ckpt" for run in runs))
    return shlex.join(places[:FEW]) + (" and the other runs" if len(places) > FEW else "")


def _show_evaluated(found: "Evaluated", as_json: bool) -> None:
    """Prints the rows as JSON, or a table for each protocol and for the probes."""
    from extrapolate.cli.render import print_json, print_line, print_table
    from extrapolate.evaluation.protocols.base import known_by
    from extrapolate.reports import tables
    from extrapolate.reports.probes import printed

    if as_json:
        print_json([*found.rows, *found.probe_rows])
        return
    for name in found.protocols:
        if not any(row["protocol"] == name for row in found.rows):
            continue  # the runs failed before this protocol
        metrics = {"loss": "loss in nats per token"}
        if known_by(name).by_window:
            metrics["window_perplexity"] = "perplexity where every window counts alike, as published"
        for metric, what in metrics.items():
            table = tables.formatted(tables.quick_table(found.rows, name, metric))
            print_table(table, f"{name}, {what}", names=list(table.columns).index("model") + 1)
        for line in tables.verdicts(found.rows, name):
            print_line(line)
    for table, title in printed(found.probe_rows):
        print_table(table, title)


@command_of(calls.evaluate_tasks, panels=("What to ask", "Runs", "Machine"))
def eval_tasks(
    runs: RunPaths,
    tasks: Annotated[
        list[str], typer.Option(help="tasks or groups of lm-eval: hellaswag,mmlu,arc_challenge,arc_easy; repeatable")
    ],
    dry_run: DryRun = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Ask trained models the benchmarks of lm-eval.

    It needs the package lm-eval. Each run keeps its rows in its folder results/, and reports show them. A run that
    fails does not stop the others: the command says why, and ends with exit code 1.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # before lm-eval imports tqdm, whose bars disturb ours
    names = split_list(",".join(tasks))
    if dry_run:
        _show_estimate(calls.estimate_tasks(runs, names, progress=CommandLine(), **given), as_json)
        return
    _show(partial(calls.evaluate_tasks, runs, names, **given), partial(_show_tasks, as_json=as_json))


def _show_tasks(found: "pd.DataFrame", as_json: bool) -> None:
    """Prints the rows as JSON, or a table for each task."""
    from extrapolate.cli.render import print_json, print_table, records
    from extrapolate.reports import tasks as tables

    if as_json:
        print_json(records(found))
        return
    for title, table in tables.printed(found) if len(found) else ():
        print_table(table, title)


@command_of(calls.inspect, panels=("What to inspect", "What to evaluate", "Text", "Runs", "Machine"))
def inspect(runs: RunPaths, as_json: AsJson = False, **given: Any) -> None:
    """Measure how trained models use position.

    It says what each head attends to, how far back the model reads, and which frequencies of a rotary encoding carry
    attention. Each run keeps its rows in its folder results/, and a report on the runs shows them. A run that
    fails does not stop the others: the command says why, and ends with exit code 1.
    """
    _show(partial(calls.inspect, runs, **given), partial(_show_inspected, as_json=as_json))


def _show_inspected(found: "pd.DataFrame", as_json: bool) -> None:
    """Prints the rows as JSON, or the tables of each model."""
    from extrapolate.cli.render import print_json, print_table, print_text, records
    from extrapolate.reports import inspection

    if as_json:
        print_json(records(found))
        return
    for title, mine in inspection.by_model(found) if len(found) else ():
        for what, table in inspection.tables_of(mine):
            print_table(table, f"{title}: {what}", names=1)
        for reason in inspection.reasons(mine):
            print_text(reason)
    if len(found) and found["run"].nunique() > 1 and len(sizes := inspection.sizes_of_models(found)):
        print_table(sizes, "sizes (root mean square), means over layers", names=1)
