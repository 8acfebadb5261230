"""Programs that compute all the time, so that a measurement can be made beside them."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# They end with the program that started them, also where that is killed. A terminal's Ctrl-C reaches them too, and that
# program ends them then.
_COMPUTE = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
parent = os.getppid()
print("begun", flush=True)
while os.getppid() == parent:
    sum(range(100_000))
"""


@contextlib.contextmanager
def programs(count: int) -> Iterator[list[int]]:
    """So many programs, of one thread each, compute until the end of the `with`. Yields their process ids."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_program()) for _ in range(count)]
        yield [program.pid for program in started]


@contextlib.contextmanager
def _program() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-I", "-S", "-c", _COMPUTE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()  # it computes from now on
            yield program
        finally:
            program.kill()
