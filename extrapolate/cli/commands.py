"""The commands of the program."""

from typing import Annotated, Any

import typer

from extrapolate.cli import bench, catalogue, check, evaluate, rows, sweep, train
from extrapolate.cli.ending import Ended
from extrapolate.machine import distributed
from extrapolate.version import __version__


class _Command(typer.core.TyperCommand):
    """Its help has a section for each `rich_help_panel`, in the order of the options, and `Options` for the rest.

    Typer itself does this only with Rich, whose boxes double the time that --help takes.
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

    def invoke(self, ctx: Any) -> Any:
        distributed.work_alone()
        return super().invoke(ctx)


class _SharedCommand(_Command):
    """One that several processes run together. Only the first of them writes to the terminal."""

    def invoke(self, ctx: Any) -> Any:
        with distributed.quiet_unless_first():
            return super(_Command, self).invoke(ctx)


class _Group(typer.core.TyperGroup):
    """Carries past Typer the exceptions that it would swallow or report itself: `ending` reports them."""

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
    train.tokenize, train.train, evaluate.eval_lengths, evaluate.eval_tasks, evaluate.inspect, rows.report,
    sweep.sweep, sweep.status, rows.compare, train.export, bench.bench, check.check, check.doctor,
    catalogue.encodings, catalogue.extensions, catalogue.columns,
):  # fmt: skip
    _shared = _command in (train.train, evaluate.eval_lengths)
    app.command(_command.__name__.replace("_", "-"), cls=_SharedCommand if _shared else _Command)(_command)
