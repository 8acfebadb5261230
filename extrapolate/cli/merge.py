"""extrapolate merge"""

from pathlib import Path
from typing import Annotated

import typer


def merge(
    runs: Annotated[list[Path], typer.Argument(help="evaluated runs, reports, or folders of them")],
    out: Annotated[Path, typer.Option(help="the new folder to write")],
    seq_len: Annotated[int | None, typer.Option(help="only runs of this training length")] = None,
    corpus: Annotated[str | None, typer.Option(help="only rows of this corpus hash")] = None,
    precision: Annotated[str | None, typer.Option(help="only rows of this evaluation precision")] = None,
    split: Annotated[str | None, typer.Option(help="only rows of this split")] = None,
) -> None:
    """Put rows of several people into one folder.

    Report and compare read it. Rows that cannot be compared are refused.
    """
    from extrapolate.api.merge import merge as merged
    from extrapolate.cli.flags import CommandLine
    from extrapolate.cli.render import print_table
    from extrapolate.terminal import say

    made = merged(runs, out, seq_len=seq_len, corpus=corpus, precision=precision, split=split, progress=CommandLine())
    shown = made.runs[["run", "model", "seed", "source", "commit", "machine"]].astype(str)
    print_table(shown.assign(evaluated=made.runs["evaluated_at"].dt.strftime("%Y-%m-%d")), "runs that were merged")
    say(f"wrote {out}/: {', '.join(made.files)}; make a report with: extrapolate report {out}")
