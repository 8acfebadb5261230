"""extrapolate eval-tasks"""

import os
from pathlib import Path
from typing import Annotated

import typer

from extrapolate.cli.eval_lengths import Device, names_of
from extrapolate.cli.flags import AsJson
from extrapolate.names import PRECISIONS


def eval_tasks(
    runs: Annotated[list[Path], typer.Argument(help="runs, folders of them, hf:NAME_OR_FOLDER, or my_model.py:load")],
    tasks: Annotated[
        list[str], typer.Option(help="tasks or groups of lm-eval: hellaswag,mmlu,arc_challenge,arc_easy; repeatable")
    ],
    extend: Annotated[
        list[str] | None, typer.Option(help="an extension: pi, yarn:factor=8 + log-n; all; without-own; repeatable")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            help="the most tokens that are read at once; longer texts lose their first  [default: as in training]"
        ),
    ] = None,
    shots: Annotated[
        int | None, typer.Option(help="examples before each question  [default: as the task says, or 0]")
    ] = None,
    limit: Annotated[
        float | None, typer.Option(help="so many questions of each task; below 1, this share  [default: all]")
    ] = None,
    include_path: Annotated[Path | None, typer.Option(help="a folder with your own tasks; their Python runs")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="copies of data sets, each in a folder of its name on the Hub")
    ] = None,
    precision: Annotated[str, typer.Option(help=", ".join(PRECISIONS))] = "fp32",
    device: Annotated[Device, typer.Option(envvar="EXTRAPOLATE_DEVICE", help="what computes")] = Device.AUTO,
    seq_len: Annotated[
        int | None, typer.Option(min=2, help="with hf: training length L, tokens  [default: as the checkpoint says]")
    ] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="run Python files that came with the runs; read them first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask trained models the benchmarks of lm-eval.

    It needs the package lm-eval. The rows are kept in each run's eval_tasks.parquet, and a report on the runs shows
    them.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # tqdm reads it once, when lm-eval, whose bars disturb ours, imports it
    from extrapolate.api.evaluate_tasks import evaluate_tasks
    from extrapolate.cli.flags import CommandLine
    from extrapolate.cli.render import print_json, print_table
    from extrapolate.reports import tasks as tables

    found = evaluate_tasks(
        runs,
        names_of(",".join(tasks)),
        extend=tuple(dict.fromkeys(extend or [])),
        length=length,
        shots=shots,
        limit=limit,
        include_path=include_path,
        data_dir=data_dir,
        precision=precision,
        device=device.value,
        seq_len=seq_len,
        trust_code=trust_code,
        progress=CommandLine(),
    )
    if as_json:
        print_json(found.astype(object).where(found.notna(), None).to_dict("records"))
        return
    for title, table in tables.by_shots(found):
        print_table(table, title)
