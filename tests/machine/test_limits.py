"""Limits of memory and CPU time, and threads that wait briefly."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from extrapolate.machine import limits
from extrapolate.machine.limits import SPINS, cpu_quota, memory_limit, wait_briefly


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 1 TB and no limits; the folder for the files of control groups."""
    monkeypatch.setattr(limits, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "_LIMITS", tmp_path / "fs")
    monkeypatch.setattr("os.sysconf", lambda name: 2**20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_limit_of_the_process_counts(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_limit() == 2**40
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (2**30, 2**31))
    assert memory_limit() == 2**30


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/jobs/mine", "jobs/mine/memory.max"),
        ("0::/not/in/this/container", "memory.max"),
        ("4:cpu,memory:/jobs/mine", "memory/jobs/mine/memory.limit_in_bytes"),
    ],
)
def test_a_limit_of_the_control_group_counts(groups: Path, line: str, file: str) -> None:
    write(groups / "cgroup", f"9:name=systemd:/\n{line}\n")
    write(groups / "fs" / file, "1073741824\n")
    assert memory_limit() == 2**30
    write(groups / "fs" / file, "max\n")
    assert memory_limit() == 2**40


@pytest.mark.parametrize(
    ("line", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/", {"cpu.max": "max 100000\n"}, None),
        ("0::/box", {"box/cpu.max": "400000 50000\n", "cpu.max": "max 100000\n"}, 8.0),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "50000\n"}, 0.5),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1\n"}, None),
        ("0::/", {}, None),
    ],
)
def test_the_quota_of_the_control_group(groups: Path, line: str, files: dict[str, str], quota: float | None) -> None:
    write(groups / "cgroup", f"{line}\n")
    for name, text in files.items():
        write(groups / "fs" / name, text)
    assert cpu_quota() == quota


SET = {"GOMP_SPINCOUNT": SPINS} if sys.platform == "linux" else {}


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, SET), *((own, own) for own in ({"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "passive"}))],
)
def test_threads_wait_briefly_unless_the_user_says_how(before: dict[str, str], after: dict[str, str]) -> None:
    environment = dict(before)
    wait_briefly(environment)
    assert environment == after


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another library")
def test_the_command_line_makes_it_before_torch_is_loaded() -> None:
    code = """
import os, sys
from extrapolate import cli
class Seen:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Seen())
cli.main(["train", "--pe", "rope", "--seq-len", "8", "--data", "/nowhere"])
"""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, env=environment).stdout.strip() == SPINS
