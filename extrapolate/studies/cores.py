"""How the cores of a machine are shared out among jobs."""

import os
from dataclasses import dataclass

from extrapolate.errors import UserError
from extrapolate.machine.limits import cores


@dataclass(frozen=True)
class Share:
    """What one of several jobs gets of the machine: its cores, () if the system has no affinity, and its number of
    threads."""

    cores: tuple[int, ...]
    threads: int

    def environment(self) -> dict[str, str]:
        """With which its process starts."""
        return {"OMP_NUM_THREADS": str(self.threads)}


def core_shares(jobs: int) -> list[Share]:
    """The share of each of `jobs` jobs. Raises UserError if there are fewer cores, or no job."""
    if jobs < 1:
        raise UserError(f"`jobs={jobs}`: at least 1 works at a time")
    if jobs > cores():
        raise UserError(f"`jobs={jobs}` is more than the cores of this process: it has {cores()}")
    if not hasattr(os, "sched_getaffinity"):
        return [Share((), cores() // jobs)] * jobs
    mine = sorted(os.sched_getaffinity(0))
    shares = [tuple(mine[slot::jobs]) for slot in range(jobs)]
    return [Share(share, len(share)) for share in shares]


def take(share: Share) -> None:
    """Makes this process use its share: called before anything is computed."""
    if share.cores:
        os.sched_setaffinity(0, share.cores)
    import torch

    torch.set_num_threads(share.threads)
