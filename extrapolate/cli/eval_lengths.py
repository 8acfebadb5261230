"""extrapolate eval-lengths"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from extrapolate.api.evaluate import evaluate_all
from extrapolate.cli.command_of import command_of
from extrapolate.cli.flags import AsJson, CommandLine

if TYPE_CHECKING:
    from extrapolate.api.evaluating import Evaluated

RunPaths = Annotated[list[Path], typer.Argument(help="runs, folders of them, hf:NAME_OR_FOLDER, or my_model.py:load")]
FEW = 4  # runs that are named one by one
BY_WINDOW = "perplexity where every window counts alike, as published"


@command_of(evaluate_all, panels=("What to evaluate", "Text", "Runs", "Machine"))
def eval_lengths(runs: RunPaths, as_json: AsJson = False, **given: Any) -> None:
    """Evaluate runs at several lengths.

    Runs are evaluated plain and with extensions, each with those that apply to it. The rows are added to each run's
    evals.parquet. A run that fails does not stop the others: the command says why, and ends with exit code 1.

    hf:NAME_OR_FOLDER is a checkpoint of Hugging Face, of a kind that docs/checkpoints.md names: it becomes the run
    ckpt/hf-NAME.
    my_model.py:load is a function of your file that returns a model of another library: see docs/checkpoints.md.
    """
    from extrapolate.api.in_turn import RunsFailed
    from extrapolate.terminal import say

    try:
        found = evaluate_all(runs, **given, progress=CommandLine())
    except RunsFailed as failure:
        _show(failure.evaluated, as_json)
        raise
    _show(found, as_json)
    say(f"make a report with: extrapolate report {_named(runs)}")


def _named(runs: list[Path]) -> str:
    """The runs as `report` takes them: a checkpoint of elsewhere has become a run in ckpt/."""
    places = list(dict.fromkeys(str(run) if run.is_dir() else "ckpt" for run in runs))
    return shlex.join(places[:FEW]) + (" and the other runs" if len(places) > FEW else "")


def _show(found: "Evaluated", as_json: bool) -> None:
    """Prints the rows, or a table for each protocol and for the probes."""
    from extrapolate.cli.render import print_json, print_line, print_table
    from extrapolate.evaluation.protocols.base import known_by
    from extrapolate.reports import tables
    from extrapolate.reports.probes import printed

    if as_json:
        print_json([*found.rows, *found.probe_rows])
        return
    for name in found.protocols:
        if not any(row["protocol"] == name for row in found.rows):
            continue  # the runs failed before it
        table = tables.formatted(tables.quick_table(found.rows, name))
        print_table(table, f"{name}, loss in nats per token", names=list(table.columns).index("model") + 1)
        if known_by(name).by_window:
            table = tables.formatted(tables.quick_table(found.rows, name, "window_perplexity"))
            print_table(table, f"{name}, {BY_WINDOW}", names=list(table.columns).index("model") + 1)
        for line in tables.verdicts(found.rows, name):
            print_line(line)
    for table, title in printed(found.probe_rows):
        print_table(table, title)
