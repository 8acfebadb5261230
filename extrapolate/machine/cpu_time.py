"""How much other programs keep this process from computing."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_THREADS, _MACHINE = Path("/proc/self/task"), Path("/proc/stat")
_STEAL = 8  # the place in /proc/stat's first line, see proc(5)


@dataclass(frozen=True)
class CpuTime:
    """What the threads of this process have had so far, seconds: of running, of waiting for a core, and what other
    virtual machines took from the cores of this one, if it is one."""

    run: float
    waited: float
    stolen: float

    @classmethod
    def now(cls) -> Self | None:
        """None if the system does not tell."""
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
        """The share of the time in which it wanted to compute that others had, 0 to 1."""
        wanted = self.run + self.waited + self.stolen
        return (self.waited + self.stolen) / wanted if wanted else 0.0
