"""A measurement has a process of its own, so that its peak memory is its own too."""

import multiprocessing
import os
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

from extrapolate.machine.children import end_with

P = ParamSpec("P")
T = TypeVar("T")


def kept() -> ProcessPoolExecutor:
    """A new process, which knows nothing of this one, and does one call after the other until the end of its `with`."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=spawn, initializer=end_with, initargs=(os.getpid(),))


def alone(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What `work` returns, called in a new process."""
    with kept() as pool:
        return pool.submit(work, *arguments, **named).result()


def peak_memory_mib() -> float:
    """The most memory that this process has held, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
