"""What tests of faults share: how often they try, and a server that runs commands in children which can be traced."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

LONG = os.environ.get("EXTRAPOLATE_FAULTS") == "long"


class Server:
    """Runs commands, each in a child of one process that has imported everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = [sys.executable, str(Path(__file__).with_name("forkserver.py"))]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._answer() == "ready"

    def run(
        self,
        command: Iterable[object],
        cwd: Path,
        *,
        calls: tuple[str, ...] = (),
        trace: Path | None = None,
        signal_at: tuple[int, int] | None = None,
        clock: bool = False,
    ) -> int:
        """Runs a command to its end, and gives its exit code, negative for the signal that ended it.

        trace: a file for the main thread's calls of these names. signal_at: the signal that it gets at the n-th.
        clock: its clock jumps back and forth.
        """
        job = {"cwd": str(cwd), "argv": [str(part) for part in command], "clock": clock}
        job |= {name: str(self.folder / name) for name in ("out", "err")}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        child = int(self._answer())
        _wait_for(lambda: _state(child) == "T")
        tracer = None
        if calls:
            names = ",".join(calls)
            options = ["-qq", "-p", str(child), "-o", str(trace or os.devnull), "-e", f"trace={names}"]
            if signal_at:
                options += ["-e", f"inject={names}:signal={signal_at[0]}:when={signal_at[1]}"]
            tracer = subprocess.Popen(["strace", *options, "-e", "signal=none"], stderr=subprocess.DEVNULL)
            _wait_for(lambda: "TracerPid:\t0\n" not in Path(f"/proc/{child}/status").read_text())
        os.kill(child, signal.SIGCONT)
        code = int(self._answer())
        if tracer is not None:
            tracer.wait()
        return code

    def said(self) -> str:
        """What the last command wrote to stderr."""
        return (self.folder / "err").read_text(errors="replace")

    def close(self) -> None:
        """Ends the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _wait_for(reached) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture(scope="session")
def times() -> int:
    """How often a fault is tried: a few times, or for the long form many."""
    return 250 if LONG else 4


@pytest.fixture(scope="session")
def flips() -> int:
    """How many bits are flipped in a file of each kind."""
    return 1250 if LONG else 60


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    """Commands in children that can be traced; needs strace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()
