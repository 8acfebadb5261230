"""Worker processes that exit with their parent.

They are plain new processes that import only what their work needs, never the module that the user started, so scripts
need no `if __name__ == "__main__"` guard.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from extrapolate.errors import UserError

LOOK_SECONDS = 0.5  # how often a process checks that its parent is alive

Serve = Callable[[Connection], None]


class Child:
    """A process that runs `serve(connection)`, a module-level function that answers with `reply`.

    what: its name in the message if it dies; environment: variables to add to those of this process.
    Ctrl-C in a terminal does not reach it: its parent ends it.
    """

    def __init__(self, serve: Serve, what: str, environment: Mapping[str, str] | None = None) -> None:
        self.what = what
        self.connection, theirs = Pipe()
        program = (
            "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)\n"  # until there is work, just exit
            f"from {__name__} import end_with, run; end_with({os.getpid()})\n"
            f"from {serve.__module__} import {serve.__name__} as serve; run(serve, {theirs.fileno()})"
        )
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join([package, *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": path} | dict(environment or {}), process_group=0,
        )  # fmt: skip
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def send(self, value: object) -> None:
        """Sends one value. Raises the same errors as `receive` if the process has ended."""
        try:
            self.connection.send(value)
        except (BrokenPipeError, ConnectionResetError):
            self.receive()
            raise

    def receive(self) -> Any:
        """The next answer. Raises what was raised in the process, or RuntimeError if it ended without an answer."""
        try:
            fine, value = self.connection.recv()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            memory = ": was there enough memory?" if code == -signal.SIGKILL else ""
            raise RuntimeError(
                f"{self.what} ended by itself ({how}){memory}; run the same command again to go on"
            ) from None
        if not fine:
            raise value
        return value

    def interrupt(self) -> None:
        """Does what Ctrl-C does: the work stops at the next point from which it can be resumed."""
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Waits until the process has ended, and drops what it still sends."""
        while self._process.poll() is None:
            with contextlib.suppress(EOFError, OSError):
                if self.connection.poll(0.1):
                    self.connection.recv()

    def kill(self) -> None:
        """Kills the process. `send` and `receive` fail from now on."""
        self._process.kill()

    def end(self) -> None:
        """Kills the process and frees its resources."""
        self.kill()
        self._process.wait()
        self.connection.close()


def end_with(parent: int) -> None:
    """Makes this process exit when its parent, with this id, has ended or was killed.

    Linux can send a signal instead, but when the starting thread ends, and other systems cannot.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def reply(connection: Connection, value: object) -> None:
    """Sends an answer to the parent process."""
    connection.send((True, value))


def run(serve: Serve, descriptor: int) -> None:
    """Does the work, in the new process. If it raises, the exception is the last answer."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Connection(descriptor) as connection:
        try:
            serve(connection)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # the other end is gone
        except (UserError, MemoryError) as error:
            connection.send((False, error))
        except Exception as error:
            connection.send((False, RuntimeError(f"{type(error).__name__}: {error}")))


def tokenizing(threads: int) -> dict[str, str]:
    """The environment variables that limit the tokenizers library to `threads`."""
    return {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": str(threads > 1).lower()}


def worker() -> ProcessPoolExecutor:
    """A new process that runs one call at a time until the end of its `with` block.

    Unlike a Child, it imports the main module.
    """
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=spawn, initializer=end_with, initargs=(os.getpid(),))
