"""extrapolate report"""

from pathlib import Path
from typing import Annotated

import typer


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
) -> None:
    """Write tables and plots of evaluated runs.

    The tables are Parquet, Markdown and LaTeX. They show loss by length and by position, and the results of probes.
    """
    from extrapolate.api.report import report as reported
    from extrapolate.cli.flags import CommandLine
    from extrapolate.cli.progress import say
    from extrapolate.cli.render import print_table, print_text
    from extrapolate.reports.tables import formatted

    written = reported(
        runs or "ckpt",
        out,
        baseline=baseline,
        seq_len=seq_len,
        corpus=corpus,
        precision=precision,
        split=split,
        progress=CommandLine(),
    )
    print_text(written.answer)
    for table in written.shown:
        print_table(formatted(table.frame), table.title)
    say(f"wrote {out}/: {', '.join(written.files)}")
