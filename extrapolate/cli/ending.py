"""How the program ends if a command fails: one line on stderr, and an exit code."""

import contextlib
import io
import os
import re
import sys
from typing import NoReturn

from extrapolate.cli import STOPPED
from extrapolate.cli.flags import in_flags
from extrapolate.errors import UserError
from extrapolate.files import FULL
from extrapolate.machine.distributed import tells_the_end
from extrapolate.machine.interrupts import Interrupted
from extrapolate.terminal import escape_unprintable

BAD_INPUT, FAILED, BROKEN_PIPE = 2, 1, 141
LONGEST = 1000  # characters of a message
_NO_MEMORY = re.compile(
    r"can't allocate memory|out of memory|not enough memory|bad_alloc|unable to allocate|malloc of size|"
    r"cannot allocate memory",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(?:allocate|size) (\d[\d.,]*(?: ?[KMGTP]?i?B\b| bytes)?)")


class Ended(Exception):  # noqa: N818 (it carries an error, and is none itself)
    """Carries an exception that Typer would swallow."""


def what_ended(error: BaseException) -> BaseException:
    """The error, or the one that an `Ended` carries."""
    return error.__cause__ if isinstance(error, Ended) and error.__cause__ is not None else error


def end(error: BaseException) -> NoReturn:
    """Prints what happened and exits."""
    if isinstance(error, BrokenPipeError):
        said, code = "", BROKEN_PIPE  # like a program that SIGPIPE ends
    elif (show := getattr(error, "show", None)) is not None:  # Typer's own, for a wrong form of the arguments
        written = io.StringIO()
        show(file=written)
        said = "\n".join(map(escape_unprintable, written.getvalue().splitlines()))
        code = getattr(error, "exit_code", BAD_INPUT)
    else:
        text, code = what_to_say(error)
        said = f"Error: {message(text)}"
    if said and tells_the_end():
        with contextlib.suppress(OSError):
            print(said, file=sys.stderr)
    _discard_rest()
    sys.exit(code)


def what_to_say(error: BaseException) -> tuple[str, int]:
    """The message and the exit code of an error."""
    if isinstance(error, KeyboardInterrupt):
        return "; ".join(getattr(error, "__notes__", [])) or "stopped", STOPPED
    text = str(error)
    if isinstance(error, UserError):
        return in_flags(text), BAD_INPUT
    if isinstance(error, Interrupted):
        return in_flags(text), STOPPED
    if isinstance(error, MemoryError) or (isinstance(error, (RuntimeError, OSError)) and _NO_MEMORY.search(text)):
        size = _SIZE.search(text)
        wanted = f" for {size[1]} more" if size else ""
        return (
            f"not enough memory{wanted}: try a smaller batch (micro_batch_tokens in the configuration), a smaller "
            "model, or shorter lengths",
            FAILED,
        )
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename else ""
        if error.errno in FULL:
            return f"{os.strerror(error.errno)}{place}; free some space and run the command again", FAILED
        return f"{error.strerror or in_flags(text) or type(error).__name__}{place}", FAILED
    said = in_flags(text) or type(error).__name__
    if isinstance(error, RuntimeError):
        return said, FAILED
    return f"{type(error).__name__}: {said} (a fault of this program; --debug shows where)", FAILED


def _discard_rest() -> None:
    """Discards output that cannot be written, which Python would try again at exit, and report."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def message(text: str) -> str:
    """The text in one line of at most about LONGEST characters, without its middle if it is longer."""
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    return escape_unprintable(line)
