"""extrapolate report"""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from extrapolate.api.report import report as call
from extrapolate.api.rows import PANEL
from extrapolate.cli.command_of import command_of
from extrapolate.cli.flags import AsJson, CommandLine
from extrapolate.errors import UserError


@command_of(call, panels=("The report", PANEL, "Checked against an earlier one"))
def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="evaluated runs, or folders of them  [default: ckpt]")
    ] = None,
    format: Annotated[
        Literal["text", "md"],
        typer.Option(help="print tables for a terminal, or Markdown for a pull request"),
    ] = "text",
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Write tables and plots of evaluated runs.

    The tables are Parquet, Markdown and LaTeX. They show loss by length and by position, and the results of probes.
    """
    if as_json and format == "md":
        raise UserError("give one of --format and --json")
    from extrapolate.cli.render import print_json, print_table, print_text
    from extrapolate.reports.tables import formatted
    from extrapolate.terminal import say

    written = call(runs or "ckpt", **given, progress=CommandLine())
    if as_json:
        print_json(written.rows)
    elif format == "md":
        sys.stdout.write(written.markdown())
    else:
        print_text(written.answer)
        for table in written.shown:
            print_table(formatted(table.frame), table.title)
    say(f"wrote {given['out']}/: {', '.join(written.files)}")
    if written.checked is not None:
        if not written.checked.worse.empty:
            raise RuntimeError(written.checked.summary())
        say(written.checked.summary())
