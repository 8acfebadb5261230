"""The most memory that a piece of work held, and memory that is kept once it is freed."""

import ctypes
import resource
import sys
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def forget_peak(device: str) -> None:
    """The peak counts from here on."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif _CLEAR.exists():
        _CLEAR.write_text("5")  # see proc(5)


def peak_mib(device: str) -> float | None:
    """The most held since, MiB: of the device's memory, or by this whole process; None if it cannot be told."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    if not (_STATUS.exists() and _CLEAR.exists()):
        return None
    line = next((line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")), None)
    return None if line is None else int(line.split()[1]) / 1024


def lifetime_peak_mib() -> float:
    """The most memory that this process has ever held, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def keep_freed_memory() -> None:
    """For the whole process: freed blocks are reused, not given back to the system and faulted in again.

    glibc maps and unmaps every block of over 32 MiB, and a step of a small model allocates several; on 2 cores
    training is 1.5 times as fast without that. Training and evaluation call it. A no-op if the C library is not glibc.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, 2**30)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
