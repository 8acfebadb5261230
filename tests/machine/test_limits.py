"""The most memory that a process may have: the machine's, or less."""

import resource
from pathlib import Path

import pytest

from extrapolate.machine import limits
from extrapolate.machine.limits import memory_limit


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 1 TB without limits: the folder where control groups keep theirs, and their list."""
    monkeypatch.setattr(limits, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "_LIMITS", tmp_path / "fs")
    monkeypatch.setattr("os.sysconf", lambda name: 2**20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_limits_it_is_the_machines(groups: Path) -> None:
    assert memory_limit() == 2**40


def test_a_limit_of_the_process_counts(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
