"""extrapolate report"""

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from extrapolate.cli.flags import AsJson
from extrapolate.errors import UserError


class Format(Enum):
    """How tables are printed."""

    TEXT, MD = "text", "md"


def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="evaluated runs, or folders of them  [default: ckpt]")
    ] = None,
    out: Annotated[Path, typer.Option(help="the folder to write")] = Path("report"),
    baseline: Annotated[
        str | None, typer.Option(help="training times are relative to this encoding's  [default: rope]")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(help="only runs of this training length")] = None,
    corpus: Annotated[str | None, typer.Option(help="only rows of this corpus hash")] = None,
    precision: Annotated[str | None, typer.Option(help="only rows of this evaluation precision")] = None,
    split: Annotated[str | None, typer.Option(help="only rows of this split")] = None,
    check: Annotated[
        Path | None,
        typer.Option(help="an earlier report, or its evals.parquet: exit code 1 if a loss is surely worse, or gone"),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="for --check: nats by which a loss may be worse  [default: 0.02]")
    ] = None,
    leaderboard: Annotated[
        bool, typer.Option("--leaderboard", help="rank the models at each length, with an interval of each rank")
    ] = False,
    threshold: Annotated[
        float | None, typer.Option(help="the accuracy that passes a probe, for effective lengths  [default: 0.85]")
    ] = None,
    format: Annotated[
        Format, typer.Option(help="what is printed: tables for a terminal, or Markdown for a pull request")
    ] = Format.TEXT,
    as_json: AsJson = False,
) -> None:
    """Write tables and plots of evaluated runs.

    The tables are Parquet, Markdown and LaTeX. They show loss by length and by position, and the results of probes.
    """
    if as_json and format is Format.MD:
        raise UserError("give one of --format and --json")
    from extrapolate.api.report import report as reported
    from extrapolate.cli.flags import CommandLine
    from extrapolate.cli.render import print_json, print_table, print_text
    from extrapolate.reports.tables import formatted
    from extrapolate.terminal import say

    written = reported(
        runs or "ckpt",
        out,
        baseline=baseline,
        seq_len=seq_len,
        corpus=corpus,
        precision=precision,
        split=split,
        check=check,
        tolerance=tolerance,
        leaderboard=leaderboard,
        threshold=threshold,
        progress=CommandLine(),
    )
    if as_json:
        print_json(written.rows)
    elif format is Format.MD:
        sys.stdout.write(written.markdown())
    else:
        print_text(written.answer)
        for table in written.shown:
            print_table(formatted(table.frame), table.title)
    say(f"wrote {out}/: {', '.join(written.files)}")
    if written.checked is not None:
        if not written.checked.worse.empty:
            raise RuntimeError(written.checked.summary())
        say(written.checked.summary())
