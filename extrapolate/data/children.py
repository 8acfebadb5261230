"""Processes of this program that do one kind of work, and end when this one does.

They are plain new processes, which import what their work needs and nothing else: never torch, and never the module
that the user started, so that no script needs a guard against being run again.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from extrapolate.errors import UserError

Serve = Callable[[Connection], None]


class Child:
    """A process that runs `serve(connection)`, a function of a module. It answers by `reply`.

    `threads` is how many the tokenizers library uses in it, all that there are by default. Ctrl-C in a terminal does
    not reach it: whoever started it ends it.
    """

    def __init__(self, serve: Serve, threads: int | None = None) -> None:
        self._connection, theirs = Pipe()
        program = (
            f"from {serve.__module__} import {serve.__name__} as serve\n"
            f"from {__name__} import run; run(serve, {theirs.fileno()})"
        )
        package = str(Path(__file__).parents[2])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, *filter(None, sys.path)])}
        if threads is not None:
            environment |= {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": str(threads > 1).lower()}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment, process_group=0,
        )  # fmt: skip
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def send(self, value: object) -> None:
        """Sends one value. Raises what `receive` does where the process has ended."""
        try:
            self._connection.send(value)
        except (BrokenPipeError, ConnectionResetError):
            self.receive()
            raise

    def receive(self) -> Any:
        """The next answer. Raises what was raised in the process, or RuntimeError where it ended without an answer."""
        try:
            fine, value = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise RuntimeError(self._how_it_ended()) from None
        if not fine:
            raise value
        return value

    def kill(self) -> None:
        """Ends the process, whatever it does. What is to be sent and received fails from now on."""
        self._process.kill()

    def end(self) -> None:
        """Ends the process, for who alone has it."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        memory = ": was there enough memory?" if code == -signal.SIGKILL else ""
        return f"a process that tokenises ended by itself ({how}){memory}; run the same command again to go on"


def reply(connection: Connection, value: object) -> None:
    """Sends an answer to who started this process."""
    connection.send((True, value))


def run(serve: Serve, descriptor: int) -> None:
    """Does the work, in the new process. An exception is the last answer."""
    with Connection(descriptor) as connection:
        try:
            serve(connection)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # nobody is there any more
        except (UserError, MemoryError) as error:
            connection.send((False, error))
        except Exception as error:
            connection.send((False, RuntimeError(f"{type(error).__name__}: {error}")))
