"""How much CPU time other programs take from this process."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_THREADS, _MACHINE = Path("/proc/self/task"), Path("/proc/stat")
_STEAL = 8  # the column in /proc/stat's first line, see proc(5)


@dataclass(frozen=True)
class CpuTime:
    """Seconds that this process's threads have run, waited for a core, and lost to other virtual machines (steal)."""

    run: float
    waited: float
    stolen: float

    @classmethod
    def now(cls) -> Self | None:
        """The totals so far; None if the system does not report them."""
        try:
            times = [path.read_text().split() for path in _THREADS.glob("*/schedstat")]
            stolen = int(_MACHINE.read_text().split(maxsplit=_STEAL + 1)[_STEAL]) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None
        if not times:
            return None
        return cls(sum(int(t[0]) for t in times) / 1e9, sum(int(t[1]) for t in times) / 1e9, stolen)

    def __add__(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.run + other.run, self.waited + other.waited, self.stolen + other.stolen)

    def __sub__(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.run - other.run, self.waited - other.waited, self.stolen - other.stolen)

    @property
    def taken(self) -> float:
        """The share of the time it wanted to run that went to others, 0 to 1."""
        wanted = self.run + self.waited + self.stolen
        return (self.waited + self.stolen) / wanted if wanted else 0.0
