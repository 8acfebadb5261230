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
from extrapolate.version import __version__


class _Command(typer.core.TyperCommand):
    """Its help has a section for each `rich_help_panel` of its options, in their order, and `Options` for the rest.

    Typer does this itself only together with Rich, whose boxes double the time that --help takes.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if option.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(option, "rich_help_panel", None) or usual, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


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


for _command in (
    tokenize.tokenize, train.train, eval_lengths.eval_lengths, eval_tasks.eval_tasks, inspect.inspect, report.report,
    sweep.sweep, sweep.status, merge.merge, compare.compare, export.export, bench.bench, check.check, doctor.doctor,
    catalogue.encodings, catalogue.extensions, catalogue.columns,
):  # fmt: skip
    app.command(_command.__name__.replace("_", "-"), cls=_Command)(_command)
