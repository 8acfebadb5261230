"""The command line: parse, call the library, render. Nothing here imports torch at start-up.

Slow imports are inside `main`, so that a Ctrl-C during them ends the program properly.
"""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from extrapolate.machine.limits import set_omp_spin

STOPPED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits.

    The exit code is 0, or 2 for bad input, 1 for a failure at run time, 130 after Ctrl-C or SIGTERM, and 141 if the
    reader of the output has gone.
    """
    _make_streams_usable()
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    set_omp_spin()
    os.environ["PYTHONSAFEPATH"] = "1"  # for torch and multiprocessing, whose `python -c` must not import from here
    try:
        with _handling({signal.SIGTERM: signal.default_int_handler}):
            code = _run([argument for argument in given if argument != "--debug"])
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


def _make_streams_usable() -> None:
    """Opens the standard streams that whoever started the program has closed, and lets the others take all text.

    A closed one is None in Python, and the next file that is opened would get its number, and what libraries and child
    processes print. Characters that an encoding such as ASCII lacks are written as `\\xb7`.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest free number, as a rule its own
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
        elif number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


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
