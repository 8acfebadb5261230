"""extrapolate inspect"""

from typing import TYPE_CHECKING, Any

from extrapolate.api.inspect import inspect as call
from extrapolate.cli.command_of import command_of
from extrapolate.cli.eval_lengths import RunPaths
from extrapolate.cli.flags import AsJson, CommandLine

if TYPE_CHECKING:
    import pandas as pd


@command_of(call, panels=("What to inspect", "What to evaluate", "Text", "Runs", "Machine"))
def inspect(runs: RunPaths, as_json: AsJson = False, **given: Any) -> None:
    """Measure how trained models use position.

    It says what each head attends to, how far back the model reads, and which frequencies of a rotary encoding carry
    attention. The rows are kept in each run's inspections.parquet, and a report on the runs shows them. A run that
    fails does not stop the others: the command says why, and ends with exit code 1.
    """
    from extrapolate.api.in_turn import RunsFailed

    try:
        found = call(runs, **given, progress=CommandLine())
    except RunsFailed as failure:
        _show(failure.evaluated, as_json)
        raise
    _show(found, as_json)


def _show(found: "pd.DataFrame", as_json: bool) -> None:
    """Prints the rows, or the tables of each model."""
    from extrapolate.cli.render import print_json, print_table, print_text
    from extrapolate.reports import inspection

    if as_json:
        print_json(found.astype(object).where(found.notna(), None).to_dict("records"))
        return
    for title, mine in inspection.by_model(found) if len(found) else ():
        for what, table in inspection.tables_of(mine):
            print_table(table, f"{title}: {what}", names=1)
        for reason in inspection.reasons(mine):
            print_text(reason)
    if len(found) and found["run"].nunique() > 1 and len(sizes := inspection.sizes_of_models(found)):
        print_table(sizes, "sizes (root mean square), means over layers", names=1)
