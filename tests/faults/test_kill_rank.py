"""torchrun, for real: the commands of docs/scaling.md, and a process of two that is killed."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import extrapolate as xt

PAGE = Path(__file__).parent.parent.parent / "docs" / "scaling.md"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
SMALL = ["--layers", "1", "--batch-tokens", "512", "--precision", "fp32", "--device", "cpu", "--no-compile"]


def commands() -> list[list[str]]:
    """The page's on several devices, as this Python runs them."""
    chapter = PAGE.read_text().partition("\n## One model on several devices\n")[2].partition("\n## ")[0]
    lines = [line for block in re.findall(r"```sh\n(.*?)```", chapter, re.DOTALL) for line in block.splitlines()]
    programs = {"torchrun": TORCHRUN, "extrapolate": [sys.executable, "-m", "extrapolate"]}
    return [programs[line.split()[0]] + shlex.split(line)[1:] for line in lines]


def ranks_of(launcher: int) -> dict[int, int]:
    """The process ids of a torchrun's processes, by rank."""
    found = {}
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if rank := [entry for entry in environment if entry.startswith(b"RANK=")]:
            found[int(rank[0].partition(b"=")[2])] = int(child)
    return found


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Polls a running process's files."""
    end = time.monotonic() + 60
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def started(store: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A long training in two processes, which has saved its state."""
    command = [*commands()[0], "--data", str(store), "--tokens", "5120000", "--save-every", "512", *SMALL]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "ckpt" / "rope" / "state.safetensors").exists, process)
    yield process
    if process.poll() is None:
        for rank in ranks_of(process.pid).values():
            os.kill(rank, signal.SIGKILL)
        process.kill()
    process.wait()


def test_the_pages_commands_run(store: Path, tmp_path: Path) -> None:
    train, evaluate, resume = commands()
    smaller = ["--factors", "1,2", "--max-targets", "512"]
    for command in ([*train, "--data", str(store), "--tokens", "2048", *SMALL], [*evaluate, *smaller], resume):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    assert "already finished" in done.stderr
    assert len(xt.rows(tmp_path / "ckpt/rope"))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_the_others_and_the_training_goes_on(
    started: subprocess.Popen[str], rank: int, tmp_path: Path
) -> None:
    began = time.monotonic()
    os.kill(ranks_of(started.pid)[rank], signal.SIGKILL)
    _, err = started.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert started.returncode == 1
    errors = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, err
    assert "another of the 2 processes ended before the work was done" in errors[0]
    assert "--resume goes on" in errors[0]
    log = tmp_path / "ckpt" / "rope" / "metrics.jsonl"
    first_step = log.read_text().count("\n")
    resumed = [*commands()[0], "--resume", "--tokens", "5120000", "--save-every", "512"]
    process = subprocess.Popen(resumed, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: log.read_text().count("\n") > first_step, process)
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert [line for line in err.splitlines() if line.startswith("Error: stopped after step")], err
