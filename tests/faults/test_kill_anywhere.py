"""kill -9, Ctrl-C and SIGTERM at any system call that changes files: the same command then ends as if nothing was."""

import random
import signal

import pytest

# The main thread's calls that are counted, and that a signal can come at.
CALLS = "write,pwrite64,writev,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,ftruncate,flock"


def at(number: int, nth: int) -> list[str]:
    return ["-o", "/dev/null", "-e", f"trace={CALLS}", "-e", f"inject={CALLS}:signal={number}:when={nth}"]


def test_killed(server, stages, command, times, tmp_path) -> None:
    total, rng = stages.calls(command, CALLS.split(",")), random.Random(command)
    for _ in range(times["kills"]):
        nth = rng.randint(1, total)
        work = stages.before(command, tmp_path / "work")
        code = server.run(stages.commands[command], work, *at(signal.SIGKILL, nth))
        where = f"killed at call {nth} of {total}"
        assert code in (-signal.SIGKILL, 0), f"{where}: {server.said()}"  # 0: it made fewer calls than the first time
        stages.check_ended(command, work, where)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_stopped(server, stages, command, times, tmp_path, number) -> None:
    total, rng = stages.calls(command, CALLS.split(",")), random.Random(f"{command} {number}")
    for _ in range(times["signals"]):
        nth = rng.randint(1, total)
        work = stages.before(command, tmp_path / "work")
        code = server.run(stages.commands[command], work, *at(number, nth))
        where = f"signal {number} at call {nth} of {total}: {server.said()}"
        assert code in (130, 0), where
        assert "Traceback" not in where
        assert code == 0 or server.said().strip(), where
        stages.check_ended(command, work, where)
