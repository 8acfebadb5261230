"""extrapolate merge"""

from pathlib import Path
from typing import Annotated, Any

import typer

from extrapolate.api.merge import merge as call
from extrapolate.api.rows import PANEL
from extrapolate.cli.command_of import command_of
from extrapolate.cli.flags import CommandLine


@command_of(call, panels=(PANEL,))
def merge(
    runs: Annotated[list[Path], typer.Argument(help="evaluated runs, reports, or folders of them")],
    out: Annotated[Path, typer.Option(help="the new folder to write")],
    **given: Any,
) -> None:
    """Put rows of several people into one folder.

    Report and compare read it. Rows that cannot be compared are refused.
    """
    from extrapolate.cli.render import print_table
    from extrapolate.terminal import say

    made = call(runs, out, **given, progress=CommandLine())
    shown = made.runs[["run", "model", "seed", "source", "commit", "machine"]].astype(str)
    print_table(shown.assign(evaluated=made.runs["evaluated_at"].dt.strftime("%Y-%m-%d")), "runs that were merged")
    say(f"wrote {out}/: {', '.join(made.files)}; make a report with: extrapolate report {out}")
