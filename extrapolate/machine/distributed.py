"""Processes that do one piece of work together, as torchrun starts them: each is a rank.

torchrun says in the environment which rank a process is, and where the others are. A process that
is alone imports nothing of torch.distributed, and torch only when it is needed: the command line imports this module.
"""

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from extrapolate.errors import UserError

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ENDED = "extrapolate: how it ended was said"
_LOST = ("gloo", "Connection closed by peer", "Connection reset by peer", "NCCL")

_store: Any = None  # where processes tell each other things while no other process need answer


@dataclass(frozen=True)
class Ranks:
    """The processes that work together: how many they are, and which one this is, from 0."""

    rank: int = 0
    world_size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files, and shows progress."""
        return self.rank == 0

    def wait(self) -> None:
        """Returns when all processes have come here."""
        if self.world_size > 1:
            import torch.distributed as dist

            dist.barrier(group=_control())

    def from_first(self, make: Callable[[], T]) -> T:
        """What the first process makes, when all have come here; it must be such that it can be pickled.

        An error of the first process is raised in all.
        """
        if self.world_size == 1:
            return make()
        import torch.distributed as dist

        self.wait()
        made: list[Any] = [None, None]
        if self.first:
            try:
                made[0] = make()
            except Exception as error:
                dist.broadcast_object_list([None, _plain(error)], group=_control())
                raise
        dist.broadcast_object_list(made, group=_control())
        if made[1] is not None:
            raise made[1]
        return made[0]

    def in_turn(self, make: Callable[[], T]) -> T:
        """What each process makes: the first one first, then the others, who find what it has written."""
        made: list[T] = []
        self.from_first(lambda: made.append(make()))
        return made[0] if self.first else make()

    def in_first(self, made: Callable[[], AbstractContextManager[None]]) -> AbstractContextManager[None]:
        """A context for the first process, and nothing for the others."""
        return made() if self.first else contextlib.nullcontext()

    def shares(self, count: int, size: int) -> list[tuple[int, int]]:
        """The ranges of `count` pieces that this process does: batches of `size`, dealt out in turn; all, if alone."""
        if self.world_size == 1:
            return [(0, count)]
        return [(first, min(first + size, count)) for first in range(self.rank * size, count, self.world_size * size)]

    def sums(self, *values: float) -> tuple[float, ...]:
        """Each value, added up over the processes: one message for all of them."""
        if self.world_size == 1:
            return values
        import numpy as np

        return tuple(self.add_up(np.array(values, np.float64)).tolist())

    def add_up(self, values: "np.ndarray") -> "np.ndarray":
        """Arrays of one shape, added up over the processes."""
        if self.world_size == 1:
            return values
        import torch
        import torch.distributed as dist

        added = torch.from_numpy(values.copy())
        dist.all_reduce(added, group=_control())
        return added.numpy()


ALONE = Ranks()
_working: Ranks = ALONE


def world_size() -> int:
    """How many processes were started together."""
    if not all(name in os.environ for name in _ENVIRONMENT):
        return 1
    return int(os.environ["WORLD_SIZE"])


def is_first() -> bool:
    """Whether this process is the first of those that were started together, or alone."""
    return world_size() == 1 or os.environ["RANK"] == "0"


@contextlib.contextmanager
def joined(what_next: str) -> Iterator[Ranks]:
    """The processes that were started together, which from here on can hear each other; or this one alone.

    If another one ends before its work is done, raises a RuntimeError that ends in `what_next`: what the user can do.
    Every process must have the same files before it: one machine, or a file system that all machines see.
    """
    if world_size() == 1:
        yield ALONE
        return
    import torch.distributed as dist

    global _working
    if not dist.is_initialized():
        _join()
    _working = Ranks(dist.get_rank(), dist.get_world_size())
    try:
        yield _working
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(sign in str(error) for sign in _LOST):
            raise RuntimeError(
                f"another of the {world_size()} processes ended before the work was done, so all of them stop; "
                f"{what_next}"
            ) from error
        raise
    finally:
        _working = ALONE


def working() -> Ranks:
    """The processes that do the present piece of work: those that `joined` gave, inside it."""
    return _working


def tells_the_end() -> bool:
    """Whether this process says how the program ends: of several, the one that ends first.

    To be asked once, at the end.
    """
    if world_size() == 1:
        return True
    if _store is None:
        return is_first()
    import torch.distributed as dist

    atexit.unregister(dist.destroy_process_group)  # it may wait for those that are gone
    try:
        return bool(_store.add(_ENDED, 1) == 1)
    except RuntimeError:  # the process that kept it is gone
        return True


def check_devices(device: str) -> None:
    """Raises UserError if there are several processes and not a CUDA device for each, if that is what they want."""
    import torch

    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device == "cuda" and world_size() > 1 and here > torch.cuda.device_count():
        raise UserError(
            f"{here} processes cannot share {torch.cuda.device_count()} CUDA devices: start one process for each "
            "device, or use `device='cpu'`"
        )


def _join() -> None:
    """Each process has a CUDA device of its own, if there are enough."""
    import torch
    import torch.distributed as dist

    global _store
    cuda = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    _store, rank, count = next(dist.rendezvous("env://"))
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", store=_store, rank=rank, world_size=count)
    atexit.register(dist.destroy_process_group)


def _control() -> Any:
    """The group of all: what processes tell each other beside gradients goes from CPU to CPU."""
    import torch.distributed as dist

    return dist.group.WORLD


def _plain(error: Exception) -> Exception:
    """An error as another process can read it."""
    return error if type(error) is UserError else RuntimeError(str(error))
