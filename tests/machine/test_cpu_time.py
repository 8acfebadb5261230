import os
import subprocess
import sys
import time

import pytest

from extrapolate.machine.cpu_time import CpuTime

pytestmark = pytest.mark.skipif(CpuTime.now() is None, reason="this system does not tell")


def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def taken(seconds: float) -> CpuTime:
    before, _, after = CpuTime.now(), busy(seconds), CpuTime.now()
    assert before is not None
    assert after is not None
    return after - before


def test_time_of_computing_is_counted() -> None:
    assert taken(0.2).run == pytest.approx(0.2, abs=0.1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a way to share a core")
def test_another_program_on_the_same_core_takes_half() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            time.sleep(0.3)
            share = taken(0.3).taken
            other.kill()
    finally:
        os.sched_setaffinity(0, cores)
    assert share > 0.25


def test_the_share_is_of_the_time_in_which_it_wanted_to_compute() -> None:
    assert (CpuTime(3.0, 2.0, 1.0) - CpuTime(1.0, 1.0, 0.0)).taken == pytest.approx(0.5)
    assert (CpuTime(1.0, 0.0, 0.0) + CpuTime(1.0, 1.0, 1.0)).taken == pytest.approx(0.5)
    assert CpuTime(0.0, 0.0, 0.0).taken == 0.0
