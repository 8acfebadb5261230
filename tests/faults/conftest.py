"""How hard the tests of this folder look, random damage to bytes and to JSON, and commands that can be traced.

EXTRAPOLATE_FAULTS is `short`, as in every run of the suite, or `long`. It decides how many examples a test tries that
has the settings of the profile `flips`, for bits that are flipped, or `fuzzing`, for anything else. A test takes one by
`@settings.get_profile("flips")`, and draws with the fixture `damage`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

LONG = os.environ.get("EXTRAPOLATE_FAULTS") == "long"
EXAMPLES = {"flips": {"short": 200, "long": 10_000}, "fuzzing": {"short": 50, "long": 10_000}}
for name, examples in EXAMPLES.items():
    chosen = examples[os.environ.get("EXTRAPOLATE_FAULTS", "short")]
    settings.register_profile(name, max_examples=chosen, deadline=None)

# Numbers at the ends of their types, of which lengths, places and counts are made.
ENDS = [0, 1, -1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63)]
INTEGERS = st.sampled_from(ENDS) | st.integers()
TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.just(10**400) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)


class Damage:
    """Strategies: the content, and something of it changed."""

    @staticmethod
    @st.composite
    def flipped(draw: st.DrawFn, content: bytes) -> bytes:
        """One bit."""
        damaged = bytearray(content)
        damaged[draw(st.integers(0, len(content) - 1))] ^= 1 << draw(st.integers(0, 7))
        return bytes(damaged)

    @staticmethod
    @st.composite
    def mutated(draw: st.DrawFn, content: bytes) -> bytes:
        """Up to eight places: bytes overwritten, put in, taken out or said twice; or the end is missing."""
        damaged = bytearray(content)
        for _ in range(draw(st.integers(1, 8))):
            place, length = draw(st.integers(0, len(damaged))), draw(st.integers(1, 16))
            how = draw(st.sampled_from(["bytes", "bytes", "number", "number", "insert", "remove", "repeat", "cut"]))
            if how == "bytes":
                damaged[place : place + length] = draw(st.binary(min_size=length, max_size=length))
            elif how == "number":
                width = draw(st.sampled_from([1, 2, 4, 8]))
                damaged[place : place + width] = (draw(INTEGERS) % 2**64).to_bytes(8, "little")[:width]
            elif how == "insert":
                damaged[place:place] = draw(st.binary(min_size=1, max_size=16))
            elif how == "remove":
                del damaged[place : place + length]
            elif how == "repeat":
                damaged[place:place] = damaged[place : place + length]
            elif draw(st.integers(0, 9)) == 0:  # of what is cut little is left to read
                del damaged[place:]
        return bytes(damaged)

    @staticmethod
    @st.composite
    def mutated_json(draw: st.DrawFn, value: Any) -> Any:
        """Up to three entries: with another value, another name, or missing."""
        value = deepcopy(value)
        for _ in range(draw(st.integers(1, 3))):
            inside: Any = value
            while keys := list(inside) if isinstance(inside, dict) else list(range(len(inside))):
                key = draw(st.sampled_from(keys))
                if isinstance(inside[key], dict | list) and draw(st.booleans()):
                    inside = inside[key]
                    continue
                how = draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
                if how == "replace":
                    inside[key] = draw(JSON)
                elif how == "rename" and isinstance(inside, dict):
                    inside[draw(TEXT)] = inside.pop(key)
                else:
                    del inside[key]
                break
        return value


@pytest.fixture(scope="session")
def damage() -> type[Damage]:
    return Damage


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
    return 250 if LONG else 3


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
