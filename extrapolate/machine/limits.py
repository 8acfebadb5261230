"""How much memory and CPU time this process may use, and how its threads wait for one another."""

import contextlib
import math
import os
import resource
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path

_ROOT = Path("/")


def memory_limit(device: str = "cpu", root: Path = _ROOT) -> int:
    """The most memory, in bytes, that this process can ever have on a device.

    On the CPU that is the machine's memory, or less if the process (RLIMIT_AS), its control group or one above it has
    a limit. root: the folder that holds /proc and /sys.
    """
    if device == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(0).total_memory)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits += [own] if own != resource.RLIM_INFINITY else []
    for group in _control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                limits.append(int((group / name).read_text()))
    return min(limits)


def cpu_share(root: Path = _ROOT) -> float:
    """The CPU time that this process may use, in cores: those it may run on, or less if it has a quota."""
    return min(allowed_cores(), cpu_quota(root) or math.inf)


def cores(root: Path = _ROOT) -> int:
    """The number of workers that this process can keep busy: its share of the CPU time, rounded down, at least 1."""
    return max(1, int(cpu_share(root)))


def allowed_cores() -> int:
    """The number of cores that this process may run on, whatever its quota."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(root: Path = _ROOT) -> float | None:
    """The least CPU quota of this process's control group and those above it, in cores; None if there is no limit.

    torch ignores it: see `stay_within_quota`. root: the folder that holds /proc and /sys.
    """
    quotas = []
    for group in _control_groups("cpu", root):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
                quotas += [quota / period] if quota > 0 else []
    return min(quotas, default=None)


def stay_within_quota(root: Path = _ROOT) -> None:
    """Gives torch no more threads than the quota keeps busy: with one for each core of the machine, most would wait.

    A user's OMP_NUM_THREADS is kept.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > (most := cores(root)):
        torch.set_num_threads(most)


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of the process's control groups, in cgroups v2 and v1, and of all groups above them: cgroups(7)."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers != "" and controller not in controllers.split(","):
                continue
            for kind in {controller, controllers} if controllers else {""}:  # "cpu" can be a link to "cpu,cpuacct"
                top = root / "sys/fs/cgroup" / kind
                group = top / path.lstrip("/")  # in a container it may be the host's path, which is not there
                yield from (group, *(above for above in group.parents if above.is_relative_to(top)))


# Rounds of a loop, 20 to 70 ns each. On 2 cores shared with one and two other busy processes, training is 1.4 and 1.8
# times as fast as with the library's default of 300,000, and equally fast alone. With 0 it is half as fast alone.
SPINS = "1000"
_OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def set_omp_spin(environment: MutableMapping[str, str] = os.environ) -> None:
    """Makes waiting threads give up their core soon, in this process and those that it starts.

    At the end of every matrix product all threads wait for the last one, in a busy loop. That is fast if each has a
    core; on a busy machine the waiting threads keep the cores from the thread they wait for.

    libgomp, which torch uses on Linux, reads the setting when it is loaded, so call this before importing torch. It
    affects the whole process, so only the command line calls it. A user's own setting is kept.
    """
    if sys.platform == "linux" and not any(name in environment for name in _OWN):
        environment["GOMP_SPINCOUNT"] = SPINS
