"""How hard the tests of this folder look, random damage to bytes and to JSON, and commands that can be traced.

EXTRAPOLATE_FAULTS is `ci` or `long`. It decides how often a fault is tried, and how many examples a test tries that has
the settings of the profile `flips`, for bits that are flipped, or `fuzzing`, for anything else. A test takes one by
`@settings.get_profile("flips")`, and draws with the fixture `damage`.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st

LEVEL = os.environ.get("EXTRAPOLATE_FAULTS", "ci")
for name, examples in {"flips": {"ci": 300, "long": 10_000}, "fuzzing": {"ci": 100, "long": 1500}}.items():
    settings.register_profile(name, max_examples=examples[LEVEL], deadline=None)

TIMES = {
    "ci": {"kills": 8, "signals": 2, "failures": 2},
    "long": {"kills": 300, "signals": 50, "failures": 50},
}

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
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._tracer: subprocess.Popen[bytes] | None = None
        self._child: int | None = None  # the command that has not ended
        assert self._answer() == "ready"

    def run(self, command: Iterable[object], cwd: Path, *tracing: str, clock: bool = False) -> int:
        """Runs a command to its end, and gives its exit code, negative for the signal that ended it.

        tracing: what strace does to its main thread meanwhile, as its flags; clock: its clock jumps back and forth.
        """
        self.start(command, cwd, *tracing, clock=clock)
        return self.end()

    def start(self, command: Iterable[object], cwd: Path, *tracing: str, clock: bool = False) -> int:
        """Starts a command, and gives its process id; `end` must follow."""
        if self._child is not None:  # a test failed before its end
            os.kill(self._child, signal.SIGKILL)
            self.end()
        job = {"cwd": str(cwd), "argv": [str(part) for part in command], "clock": clock}
        job |= {name: str(self.folder / name) for name in ("out", "err")}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._child = child = int(self._answer())
        wait_for(lambda: _state_of(child) == "T")
        if tracing:
            program = ["strace", "-qq", "-p", str(child), "-e", "signal=none", *tracing]
            self._tracer = subprocess.Popen(program, stderr=subprocess.DEVNULL)
            wait_for(lambda: "TracerPid:\t0\n" not in Path(f"/proc/{child}/status").read_text())
        os.kill(child, signal.SIGCONT)
        return child

    def end(self) -> int:
        """Waits for the command's end; gives its exit code."""
        code = int(self._answer())
        self._child = None
        if self._tracer is not None:
            self._tracer.wait()
            self._tracer = None
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
        if not select.select([self._process.stdout], [], [], 120)[0]:
            raise TimeoutError(f"no end after two minutes; it said: {self.said()}")
        return self._process.stdout.readline().decode().strip()


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(reached: Callable[[], bool]) -> None:
    """Waits, a minute at most, until something is so."""
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Commands in children that can be traced; needs strace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


TRAIN = [
    "train", "--pe", "rope", "--data", "store", "--seq-len", "16", "--tokens", "5120", "--batch-tokens", "512",
    "--layers", "1", "--precision", "fp32", "--device", "cpu", "--no-compile", "--save-every", "1536",
    "--keep-every", "2048", "--out", "run", "--resume",
]  # fmt: skip
COMMANDS = {
    "tokenize": ["tokenize", "texts", "--out", "store", "--vocab-size", "300", "--min-heldout-tokens", "300"],
    "train": TRAIN,
    "eval-lengths": ["eval-lengths", "run", "--factors", "1,4", "--max-targets", "512", "--protocol", "windows"],
    "report": ["report", "run", "--out", "report"],
}
# What a clock or the load of the machine decides.
VOLATILE = ["tokens_per_s", "others", "training_taken", "peak_mib", "evaluated_at"]
KEYS = ["run", "extension", "protocol", "factor", "step", "document"]


class Stages:
    """A folder as each command finds it, and as it leaves it; and how many calls of each kind a command makes."""

    commands = COMMANDS

    def __init__(self, server: Server, corpus: Path, folder: Path) -> None:
        self.server, self.folder = server, folder
        work = folder / "work"
        shutil.copytree(corpus, work / "texts")
        for name, command in COMMANDS.items():
            shutil.copytree(work, folder / f"before-{name}")
            trace = folder / f"trace-{name}"
            code = server.run(command, work, "-o", str(trace), "-e", f"trace={','.join(CHANGING)}")
            assert code == 0, server.said()
            shutil.copytree(work, folder / f"after-{name}")

    def before(self, name: str, work: Path) -> Path:
        """Makes the folder `work` as the command finds it."""
        if work.exists():
            for path in work.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.folder / f"before-{name}", work, dirs_exist_ok=True)
        return work

    def calls(self, name: str, kinds: Iterable[str]) -> int:
        """How many calls of these kinds its main thread makes."""
        made = [line.split("(")[0] for line in (self.folder / f"trace-{name}").read_text().splitlines()]
        return sum(call in kinds for call in made)

    def check_ended(self, name: str, work: Path, where: str) -> None:
        """The command, called once more where it has not ended, ends with the files of an undisturbed one."""
        if name != "tokenize" or not (work / "store").exists():
            assert self.server.run(COMMANDS[name], work) == 0, f"{where}; then {self.server.said()}"
        assert contents(work) == contents(self.folder / f"after-{name}"), where


# Calls that change files, or say how far a command is.
CHANGING = (
    "write", "pwrite64", "writev", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat",
    "rmdir", "fsync", "fdatasync", "ftruncate", "flock",
)  # fmt: skip


def contents(folder: Path) -> dict[str, object]:
    """Every file, leftovers too, but for what a clock decides."""
    return {
        str(path.relative_to(folder)): _content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not (path.name == ".lock" and path.parent.name == "run") and path.name != ".source"
    }


def _content(path: Path) -> object:
    if path.name == "metrics.jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [{key: value for key, value in row.items() if key not in VOLATILE} for row in rows]
    if path.name == "config.json":
        config = json.loads(path.read_text())["config"]
        return {**config, "data": {**config["data"], "path": "store"}}
    if path.suffix == ".parquet":
        frame = pd.read_parquet(path)
        order = [key for key in KEYS if key in frame]
        frame = frame.drop(columns=[name for name in VOLATILE if name in frame])
        return (frame.sort_values(order) if order else frame).to_csv(index=False)
    return path.read_bytes()


@pytest.fixture(scope="session")
def stages(server: Server, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Stages:
    """The four commands, one after the other, undisturbed."""
    return Stages(server, corpus, tmp_path_factory.mktemp("stages"))


@pytest.fixture(scope="session", params=COMMANDS)
def command(request: pytest.FixtureRequest) -> str:
    """The name of a command."""
    return str(request.param)


@pytest.fixture(scope="session")
def times(command: str) -> dict[str, int]:
    """How often a command meets each fault. A report takes longest."""
    return {fault: max(1, n // 3) if command == "report" else n for fault, n in TIMES[LEVEL].items()}
