"""The commands of the program."""

from typing import Annotated, Any

import typer

from extrapolate.cli import (
    bench,
    catalogue,
    check,
    compare,
    doctor,
    eval_lengths,
    eval_tasks,
    export,
    inspect,
    merge,
    report,
    sweep,
    tokenize,
    train,
)
from extrapolate.cli.ending import Ended
from extrapolate.cli.sections import Sections
from extrapolate.version import __version__


class _Group(typer.core.TyperGroup):
    """Typer ends these without a word, or with one of its own; how the program ends is said in one place."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError, EOFError) as error:
            raise Ended from error


app = typer.Typer(
    name="extrapolate",
    cls=_Group,
    help="Compare positional encodings: train short, test long.\n\n"
    "Every command takes --debug, which shows the traceback of an error.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes double the time that --help takes
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"extrapolate {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command("tokenize")(tokenize.tokenize)
app.command("train", cls=Sections)(train.train)
app.command("eval-lengths", cls=Sections)(eval_lengths.eval_lengths)
app.command("eval-tasks", cls=Sections)(eval_tasks.eval_tasks)
app.command("inspect", cls=Sections)(inspect.inspect)
app.command("report", cls=Sections)(report.report)
app.command("sweep", cls=Sections)(sweep.sweep)
app.command("status")(sweep.status)
app.command("merge", cls=Sections)(merge.merge)
app.command("compare", cls=Sections)(compare.compare)
app.command("export")(export.export)
app.command("bench", cls=Sections)(bench.bench)
app.command("check")(check.check)
app.command("doctor")(doctor.doctor)
app.command("encodings")(catalogue.encodings)
app.command("extensions")(catalogue.extensions)
app.command("columns")(catalogue.columns)
