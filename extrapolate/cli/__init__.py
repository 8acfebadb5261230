"""The command line: parse, call the library, render. Nothing here imports torch at start-up.

Slow imports are inside `main`, so that a Ctrl-C during them ends the program properly.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from extrapolate.machine.distributed import is_first
from extrapolate.machine.limits import wait_briefly

STOPPED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits.

    The exit code is 0, or 2 for bad input, 1 for a failure at run time, 130 after Ctrl-C or SIGTERM, and 141 if the
    reader of the output has gone.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    wait_briefly()
    os.environ["PYTHONSAFEPATH"] = "1"  # for torch and multiprocessing, whose `python -c` must not import from here
    try:
        with _handling({signal.SIGTERM: signal.default_int_handler}):
            code = _run_quietly([argument for argument in given if argument != "--debug"])
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        with _handling({signal.SIGTERM: signal.SIG_IGN, signal.SIGINT: signal.SIG_IGN}):  # while it ends
            from extrapolate.cli.ending import end, what_ended
            from extrapolate.specs.user_files import mistake_of_user

            ended = what_ended(error)
            said = mistake_of_user(ended) or ended  # a user's own file may have raised SystemExit
            if isinstance(said, SystemExit) or (debug and said is ended):
                raise said from said.__cause__  # the error of a user's own code
            if debug:
                raise said from ended
            end(said)
    sys.exit(code)


def _run_quietly(arguments: list[str]) -> int:
    """Runs a command. Of several processes that run it together, only the first writes to the terminal."""
    if is_first():
        return _run(arguments)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    from extrapolate.cli.commands import app

    code = app(arguments, standalone_mode=False)  # or Typer prints errors itself
    if code == STOPPED:
        raise KeyboardInterrupt
    sys.stdout.flush()  # here, where an error can still be reported
    return code if isinstance(code, int) else 0


@contextlib.contextmanager
def _handling(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
