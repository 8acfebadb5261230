"""How much memory there is."""

import contextlib
import os
import resource
from pathlib import Path

_GROUPS, _LIMITS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def memory_limit(device: str = "cpu") -> int:
    """The most memory, bytes, that this process can ever have: the device's, or the machine's.

    Of the machine's it may be allowed less: by a limit of the process (RLIMIT_AS), or of its control group.
    """
    if device == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(0).total_memory)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_control_group_limits()]
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min([*limits, own] if own != resource.RLIM_INFINITY else limits)


def _control_group_limits() -> list[int]:
    """What the process's control groups allow, bytes: of the second version, and of the first. See cgroups(7)."""
    found = []
    for line in _GROUPS.read_text().splitlines() if _GROUPS.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            kind, name = "", "memory.max"
        elif "memory" in controllers.split(","):
            kind, name = "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be the host's, and the limit be that of the folder itself.
        for folder in (_LIMITS / kind / path.lstrip("/"), _LIMITS / kind):
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                found.append(int((folder / name).read_text()))
    return found
