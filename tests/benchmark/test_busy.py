"""Busy programs compute, and are gone afterwards, however the program that started them ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from extrapolate.benchmark import busy

STARTER = """
import signal, time
from extrapolate.benchmark import busy
signal.signal(signal.SIGINT, signal.default_int_handler)
with busy.programs(2) as ids:
    print(*ids, flush=True)
    time.sleep(60)
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end_of(ids: list[int]) -> bool:
    """Waits for it."""
    until = time.monotonic() + 20
    while any(map(runs, ids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(runs, ids))


def ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_they_compute_until_the_end_of_the_with() -> None:
    with busy.programs(2) as ids:
        assert len(set(ids)) == 2
        before, until = [ticks(pid) for pid in ids], time.monotonic() + 20
        while any(ticks(pid) <= first for pid, first in zip(ids, before, strict=True)) and time.monotonic() < until:
            time.sleep(0.02)
        assert all(ticks(pid) > first for pid, first in zip(ids, before, strict=True))
    assert not any(map(runs, ids))
    with pytest.raises(ZeroDivisionError), busy.programs(1) as ids:
        raise ZeroDivisionError
    assert not any(map(runs, ids))
    with busy.programs(0) as ids:
        assert ids == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_they_end_with_the_program_that_started_them(number: signal.Signals) -> None:
    """Ctrl-C reaches all programs of a terminal's command; a kill that one alone."""
    starter = [sys.executable, "-c", STARTER]
    with subprocess.Popen(
        starter, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as started:
        assert started.stdout is not None
        ids = [int(word) for word in started.stdout.readline().split()]
        assert len(ids) == 2
        assert all(map(runs, ids))
        (os.killpg if number == signal.SIGINT else os.kill)(started.pid, number)
        started.wait(20)
        assert end_of(ids)
