"""The command line: parse, call the library, render. Nothing here imports torch at start-up."""

import errno
import sys
from collections.abc import Sequence

import typer

from extrapolate.cli import bench, catalogue, check, compare, eval_lengths, report, tokenize, train
from extrapolate.cli.flags import in_flags
from extrapolate.errors import UserError
from extrapolate.specs import mistake_of_user

app = typer.Typer(
    name="extrapolate",
    help="Compare positional encodings: train short, test long.\n\n"
    "Every command takes --debug, which shows the traceback of an error.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes double the time that --help takes
)
app.command("tokenize")(tokenize.tokenize)
app.command("train")(train.train)
app.command("eval-lengths")(eval_lengths.eval_lengths)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("bench")(bench.bench)
app.command("check")(check.check)
app.command("encodings")(catalogue.encodings)
app.command("extensions")(catalogue.extensions)
app.command("columns")(catalogue.columns)

BAD_INPUT, FAILED, STOPPED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0, 2 for bad input, 1 for a failure at run time, 130 when stopped by the user."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        app([argument for argument in given if argument != "--debug"])
    except (Exception, SystemExit) as error:
        said = mistake_of_user(error) or error  # a user's own file may end the program: then not all is well
        if isinstance(said, SystemExit) or (debug and said is error):
            raise
        if debug:
            raise said from error
        _fail(said)


def _fail(error: Exception) -> None:
    message = in_flags(" ".join(str(error).split())) or type(error).__name__
    code = BAD_INPUT if isinstance(error, UserError) else FAILED
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename else ""
        hint = "; free some space and run the command again" if error.errno in (errno.ENOSPC, errno.EFBIG) else ""
        message = f"{error.strerror or message}{place}{hint}"
    elif type(error).__name__ == "Interrupted":
        code = STOPPED
    elif not isinstance(error, (UserError, RuntimeError)):
        message = f"{type(error).__name__}: {message} (a fault of this program; --debug shows where)"
    print(f"Error: {message}", file=sys.stderr)
    sys.exit(code)
