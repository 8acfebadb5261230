"""Makes the C library keep the memory that tensors free."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """For the whole process: freed blocks are reused, not given back to the system and faulted in again.

    glibc maps and unmaps every block of over 32 MiB, and a step of a small model allocates several; on 2 cores
    training is 1.5 times as fast without that. Training and evaluation call it. Does nothing where the C library is
    not glibc.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, 2**30)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
