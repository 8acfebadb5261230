"""extrapolate sweep and extrapolate status"""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from extrapolate.cli.flags import AsJson, CommandLine
from extrapolate.errors import UserError

_STUDY, _MACHINE, _CLUSTER = (
    partial(typer.Option, rich_help_panel=title) for title in ("The study", "This machine", "With --engine ray")
)


def sweep(
    study: Annotated[Path, typer.Argument(help="a TOML file: the grid, and what to evaluate")],
    out: Annotated[Path | None, _STUDY(help="the study's folder  [default: sweeps/<the file's name>]")] = None,
    scale: Annotated[str | None, _STUDY(help="apply the file's section [scale.NAME], such as tiny")] = None,
    pe: Annotated[
        list[str] | None,
        _STUDY(help="train this instead of the study's encodings, in the same way; repeatable"),
    ] = None,
    jobs: Annotated[
        int | None,
        _MACHINE(
            min=1,
            envvar="EXTRAPOLATE_JOBS",
            help="trainings and evaluations at once  [default: the faster of 1 and one a core]",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"], _MACHINE(help="local: this machine; ray: the machines of a cluster")
    ] = "local",
    address: Annotated[
        str | None, _CLUSTER(help="the cluster's address; auto: this machine's cluster  [default: a new one]")
    ] = None,
    cpus: Annotated[float, _CLUSTER(min=0, help="CPUs for each cell")] = 1,
    gpus: Annotated[float, _CLUSTER(min=0, help="GPUs for each cell, such as 0.25")] = 0,
    array: Annotated[
        str | None, _MACHINE(help="INDEX/COUNT, such as 0/8: do one share of the cells, for schedulers")
    ] = None,
    dry_run: Annotated[
        bool, _STUDY("--dry-run", help="write nothing: show the cells, and the time that they would take")
    ] = False,
    tracker: Annotated[
        Literal["trackio", "wandb", "tensorboard"] | None,
        _STUDY(envvar="EXTRAPOLATE_TRACKER", help="also send the runs' training logs to this tracker  [default: none]"),
    ] = None,
    trust_code: Annotated[
        bool, _STUDY("--trust-code", help="run Python files that the study names; read them first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train and evaluate every cell of a study.

    A report on all cells is written at the end. Finished work is never repeated: after a stop, a kill or a failure, run
    the same command again.
    """
    from extrapolate.cli.render import print_json, print_table, print_text
    from extrapolate.reports.tables import formatted
    from extrapolate.studies import sweep as sweeping
    from extrapolate.studies.status import status_of
    from extrapolate.terminal import duration, say

    asked: Any = dict(scale=scale, encodings=pe or (), jobs=jobs, trust_code=trust_code, progress=CommandLine())
    if dry_run:
        rows, whole = sweeping.estimate_sweep(study, out, **asked)
        if as_json:
            print_json(rows.to_dict("records"))
            return
        shown = rows.assign(
            parameters=[f"{count:,}" for count in rows.pop("parameters")],
            tokens=[f"{count:,}" for count in rows.pop("tokens")],
            operations=[f"{count:.1e}" for count in rows.pop("flops")],
            training=[duration(seconds) for seconds in rows.pop("training_s")],
            evaluation=[duration(seconds) for seconds in rows.pop("evaluation_s")],
        )
        print_table(shown, f"{len(shown)} cells, {whole.jobs} at once: about {duration(whole.seconds)}")
        return
    share = None if array is None else _share(array)
    found = sweeping.sweep(
        study, out, **asked, engine=engine, address=address, cpus=cpus, gpus=gpus, array=share, tracker=tracker
    )
    if as_json:
        print_json(map(asdict, status_of(found.folder)))
    for written in [] if as_json else found.reports.values():
        print_text(written.answer)
        for table in written.shown:
            print_table(formatted(table.frame), table.title)
    if array is not None:
        say(f"{len(found.runs)} cells evaluated; after all shares, the command without --array writes the report")
    elif found.runs:
        say(f"{len(found.runs)} cells evaluated; the report is in {', '.join(map(str, found.reports))}")
    if found.failed:
        but = ", but for those that diverged" if found.diverged.keys() & found.failed.keys() else ""
        raise RuntimeError(f"{len(found.failed)} of the cells failed; run the same command to try again{but}")


def status(
    folder: Annotated[Path, typer.Argument(help="a study's folder, as sweep makes it")],
    as_json: AsJson = False,
) -> None:
    """Show how far a study is.

    It lists the cells that are done, running, failed and left.
    """
    import pandas as pd

    from extrapolate.cli.render import print_json, print_table
    from extrapolate.studies.status import status as found
    from extrapolate.studies.status import status_of

    if as_json:
        print_json(map(asdict, status_of(folder)))
        return
    rows = found(folder)
    counts = rows["status"].value_counts(sort=False)
    shown = rows.assign(
        tokens=[
            f"{done:,}" if pd.isna(of) else f"{done:,} of {of:,.0f}"
            for done, of in zip(rows["tokens"], rows.pop("of"), strict=True)
        ],
        loss=["" if pd.isna(loss) else f"{loss:.3f}" for loss in rows["loss"]],
        val_loss=["" if pd.isna(loss) else f"{loss:.3f}" for loss in rows["val_loss"]],
        reason=rows["reason"].fillna(""),
    )
    if not rows["reason"].notna().any():
        shown = shown.drop(columns="reason")
    print_table(shown, f"{folder}: {', '.join(f'{count} {name}' for name, count in counts.items())}")


def _share(text: str) -> tuple[int, int]:
    try:
        index, count = map(int, text.split("/"))
    except ValueError:
        raise UserError(f"--array {text}: give INDEX/COUNT, such as 0/8") from None
    return index, count
