"""What is measured has a process of its own."""

import operator
import os

import pytest

from extrapolate.benchmark import process


def test_the_work_is_done_in_another_process_and_its_answer_comes_back() -> None:
    assert process.alone(os.getpid) != os.getpid()


def test_what_fails_there_fails_here() -> None:
    with pytest.raises(ZeroDivisionError):
        process.alone(operator.truediv, 1, 0)


def test_memory_is_counted_in_mib() -> None:
    before = process.peak_memory_mib()
    taken = bytearray(b"1" * (int(before + 64) * 2**20))
    assert process.peak_memory_mib() >= len(taken) / 2**20
