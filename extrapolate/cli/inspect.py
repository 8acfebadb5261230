"""extrapolate inspect"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extrapolate.cli import registered
from extrapolate.cli.eval_lengths import names_of, numbers_of
from extrapolate.cli.flags import AsJson, Device

if TYPE_CHECKING:
    import pandas as pd


def inspect(
    runs: Annotated[list[Path], typer.Argument(help="runs, folders of them, hf:NAME_OR_FOLDER, or my_model.py:load")],
    measures: Annotated[
        list[str] | None,
        typer.Option("--measure", help=f"{registered.measurements()}, or several; repeatable  [default: all]"),
    ] = None,
    factors: Annotated[str, typer.Option(help="lengths as multiples of the training length")] = "1,2,4,8,16",
    extend: Annotated[
        list[str] | None, typer.Option(help="an extension: pi, yarn:factor=8 + log-n; repeatable")
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(help="the most windows that are read at each length  [default: 16; fewer, to 4, of long ones]"),
    ] = None,
    split: Annotated[str, typer.Option(help="the held-out text: test or validation")] = "test",
    device: Annotated[Device, typer.Option(envvar="EXTRAPOLATE_DEVICE", help="what computes")] = Device.AUTO,
    data: Annotated[Path | None, typer.Option(help="token store  [default: the one of the training]")] = None,
    seq_len: Annotated[
        int | None, typer.Option(min=2, help="with hf: training length L, tokens  [default: as the checkpoint says]")
    ] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="run Python files that came with the runs; read them first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure how trained models use position.

    It says what each head attends to, how far back the model reads, and which frequencies of a rotary encoding carry
    attention. The rows are kept in each run's inspections.parquet, and a report on the runs shows them. A run that
    fails does not stop the others: the command says why, and ends with exit code 1.
    """
    from extrapolate.api.failures import RunsFailed
    from extrapolate.api.inspect import inspect as inspect_runs
    from extrapolate.cli.flags import CommandLine

    try:
        found = inspect_runs(
            runs,
            measures=names_of(",".join(measures or [])),
            factors=numbers_of(factors),
            extend=tuple(dict.fromkeys(extend or [])),
            windows=windows,
            split=split,
            device=device.value,
            data=data,
            seq_len=seq_len,
            trust_code=trust_code,
            progress=CommandLine(),
        )
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
