"""The most memory that a piece of work held."""

from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak(device: str) -> None:
    """The peak counts from here on."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif _CLEAR.exists():
        _CLEAR.write_text("5")  # see proc(5)


def peak_mib(device: str) -> float | None:
    """The most held since, MiB: of the device's memory, or by this whole process; None where it cannot be told."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    if not (_STATUS.exists() and _CLEAR.exists()):
        return None
    line = next((line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")), None)
    return None if line is None else int(line.split()[1]) / 1024
