"""Peak memory since the last reset: on a GPU, of this process, or unknown."""

import mmap
import sys
from pathlib import Path

import pytest
import torch

from extrapolate.machine import memory
from extrapolate.machine.children import worker
from extrapolate.machine.memory import forget_peak, lifetime_peak_mib, peak_mib

SIZE = 100 * 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_peak_is_of_the_work_since_it_was_forgotten() -> None:
    forget_peak("cpu")
    before = peak_mib("cpu")
    with mmap.mmap(-1, SIZE) as held:  # freed at once, independent of the allocator
        held.write(b"x" * SIZE)
        with_it = peak_mib("cpu")
    assert before is not None
    assert with_it is not None
    assert with_it > before + 90
    assert peak_mib("cpu") >= with_it - 1
    forget_peak("cpu")
    assert peak_mib("cpu") < with_it - 50


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, processes begin with nothing")
def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it() -> None:
    with mmap.mmap(-1, 12 * SIZE) as held:
        held.write(b"x" * 12 * SIZE)
        with worker() as process:
            assert 10 < process.submit(lifetime_peak_mib).result() < 1000


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A process's two files, as proc(5) has them."""
    (tmp_path / "status").write_text("Name:\tpython\nVmPeak:\t 9999 kB\nVmHWM:\t    3072 kB\nVmRSS:\t    1024 kB\n")
    (tmp_path / "clear_refs").write_text("")
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "status")
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "clear_refs")
    return tmp_path


def test_of_a_gpu_it_is_what_was_allocated_there(process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: calls.append("forgotten"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5 * 2**20)
    forget_peak("cuda")
    assert calls == ["forgotten"]
    assert peak_mib("cuda") == 5
    assert (process / "clear_refs").read_text() == ""


def test_of_a_process_it_is_its_high_water_mark(process: Path) -> None:
    forget_peak("cpu")
    assert (process / "clear_refs").read_text() == "5"
    assert peak_mib("cpu") == 3


@pytest.mark.parametrize("missing", ["status", "clear_refs", "the mark"])
def test_if_something_is_missing_it_cannot_be_told(process: Path, missing: str) -> None:
    """Without `status`, or the mark in it, nothing is read; without `clear_refs` it would be that of all before."""
    if missing == "the mark":
        (process / "status").write_text("Name:\tpython\n")
    else:
        (process / missing).unlink()
    forget_peak("cpu")
    assert peak_mib("cpu") is None
