"""Full and failing disks, read-only folders, clocks that jump, two at once: one clear line, and nothing lost."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# The calls that a failing disk answers with an error.
FAILING = "fsync,fdatasync,rename,mkdir,unlink,rmdir,ftruncate"
PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, in memory; its size can be changed. Only root can have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True, text=True, check=False)
    if mount.returncode:
        pytest.skip(f"no disk can be mounted: {mount.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


def pages(disk: Path) -> int:
    """What is used."""
    found = os.statvfs(disk)
    return found.f_blocks - found.f_bfree


def check_failed(server, code: int, *words: str) -> None:
    said = server.said()
    assert code in (1, 2), said
    assert "Traceback" not in said
    assert "fault of this program" not in said
    last = said.splitlines()[-1]
    assert last.startswith("Error: "), said
    for word in words:
        assert word in last


def test_a_full_disk(server, stages, command, times, disk) -> None:
    needed = pages(stages.before(command, disk / "work").parent)
    assert server.run(stages.commands[command], disk / "work") == 0, server.said()
    grown = pages(disk) - needed
    rng = random.Random(command)
    for _ in range(times["failures"]):
        work = stages.before(command, disk / "work")
        before = pages(disk)
        room = rng.randint(0, grown)
        remount(disk, f"size={(before + room) * PAGE}")
        code = server.run(stages.commands[command], work)
        if code:
            check_failed(server, code, "No space left on device")
        remount(disk, "size=1g")
        stages.check_ended(command, work, f"{room} of {grown} pages were free: {server.said()}")


def test_a_failing_disk(server, stages, command, times, tmp_path) -> None:
    total, rng = stages.calls(command, FAILING.split(",")), random.Random(command)
    for _ in range(times["failures"]):
        nth, error = rng.randint(1, total), rng.choice(["EIO", "ENOSPC", "EROFS", "ESTALE"])
        work = stages.before(command, tmp_path / "work")
        options = ["-o", "/dev/null", "-e", f"trace={FAILING}", "-e", f"inject={FAILING}:error={error}:when={nth}+"]
        code = server.run(stages.commands[command], work, *options)
        if code:
            check_failed(server, code)
        stages.check_ended(command, work, f"{error} from call {nth} of {total} on: {server.said()}")


def test_a_folder_that_cannot_be_written(server, stages, command, disk) -> None:
    work = stages.before(command, disk / "work")
    remount(disk, "ro")
    check_failed(server, server.run(stages.commands[command], work), "Read-only file system")
    remount(disk, "rw")
    stages.check_ended(command, work, "after it was read-only")


def test_a_clock_that_jumps(server, stages, command, tmp_path) -> None:
    work = stages.before(command, tmp_path / "work")
    assert server.run(stages.commands[command], work, clock=True) == 0, server.said()
    stages.check_ended(command, work, "with a clock that jumps")


def test_two_at_once(server, stages, command, cli, tmp_path, monkeypatch) -> None:
    """The first is stopped in the middle of its writing; the second says that another process is there."""
    work = stages.before(command, tmp_path / "work")
    trace, middle = tmp_path / "trace", (stages.calls(command, ["fsync"]) + 1) // 2
    stop = ["-e", "signal=SIGSTOP", "-e", f"inject=fsync:signal={signal.SIGSTOP}:when={middle}"]
    child = server.start(stages.commands[command], work, "-o", str(trace), "-e", "trace=fsync", *stop)
    try:
        end = time.monotonic() + 60
        while (made := trace.read_text()).count("fsync(") < middle or "stopped" not in made.rpartition("fsync(")[2]:
            assert time.monotonic() < end
            time.sleep(0.01)
        monkeypatch.chdir(work)
        refused = cli(*stages.commands[command])
    finally:
        os.kill(child, signal.SIGCONT)
    assert server.end() == 0, server.said()
    assert "another process" in refused.error()
    stages.check_ended(command, work, "with another that was refused")
