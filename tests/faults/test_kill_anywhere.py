"""kill -9, Ctrl-C and SIGTERM at any system call that changes files: the same command then ends as if nothing was."""

import json
import random
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest

# What changes files, or says how far a command is.
CALLS = (
    "write", "pwrite64", "writev", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat",
    "rmdir", "fsync", "fdatasync", "ftruncate", "flock",
)  # fmt: skip
TRAIN = [
    "train", "--pe", "rope", "--data", "store", "--seq-len", "16", "--tokens", "5120", "--batch-tokens", "512",
    "--layers", "1", "--precision", "fp32", "--device", "cpu", "--no-compile", "--save-every", "1536",
    "--keep-every", "2048", "--out", "run", "--resume",
]  # fmt: skip
COMMANDS = {
    "tokenize": ["tokenize", "texts", "--out", "store", "--vocab-size", "300", "--min-heldout-tokens", "300"],
    "train": TRAIN,
    "eval-lengths": ["eval-lengths", "run", "--factors", "1,4", "--max-targets", "512", "--extend", "pi"],
    "report": ["report", "run", "--out", "report"],
}
# What a clock or the load of the machine decides.
VOLATILE = ["tokens_per_s", "peak_mib", "evaluated_at"]
KEYS = ["run", "extension", "protocol", "factor", "step", "document"]


@pytest.fixture(scope="module")
def stages(server, corpus, tmp_path_factory) -> dict[str, Path]:
    """The folder as each command finds it, and as the last one leaves it; and how many calls each command makes."""
    folder = tmp_path_factory.mktemp("stages")
    work = folder / "work"
    shutil.copytree(corpus, work / "texts")
    for name, command in COMMANDS.items():
        shutil.copytree(work, folder / f"before-{name}")
        assert server.run(command, work) == 0, server.said()
        shutil.copytree(work, folder / f"after-{name}")
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=["kill", "ctrl-c", "term"])
def test_the_same_command_ends_as_if_nothing_was(server, stages, tmp_path, times, name, number) -> None:
    trace = tmp_path / "calls"
    work = shutil.copytree(stages[f"before-{name}"], tmp_path / "traced")
    assert server.run(COMMANDS[name], work, calls=CALLS, trace=trace) == 0
    total = len(trace.read_text().splitlines())
    rng = random.Random(f"{name} {number}")
    for turn in range(times if number == signal.SIGKILL else max(1, times // 4)):
        nth = rng.randint(1, total)
        shutil.rmtree(work)
        shutil.copytree(stages[f"before-{name}"], work)
        code = server.run(COMMANDS[name], work, calls=CALLS, signal_at=(number, nth))
        where = f"turn {turn}: signal {number} at call {nth} of {total}: {server.said()}"
        if number == signal.SIGKILL:
            assert code in (-signal.SIGKILL, 0), where  # 0: a call of a thread that was not reached
        else:
            assert code in (130, 0), where
            assert "Traceback" not in server.said(), where
            assert code == 0 or server.said().splitlines()[-1].startswith("Error: "), where
        if number != signal.SIGKILL and code == 0 and name == "tokenize":
            pass
        elif name != "tokenize" or not (work / "store").exists():
            assert server.run(COMMANDS[name], work) == 0, where + server.said()
        assert contents(work) == contents(stages[f"after-{name}"]), where


def contents(folder: Path) -> dict[str, object]:
    """Every file, but for what a clock decides; the names of leftovers too."""
    return {
        str(path.relative_to(folder)): content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def content(path: Path) -> object:
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
