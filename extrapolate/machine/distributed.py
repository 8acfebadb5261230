"""Processes that torchrun starts to work together, the ranks.

torchrun's environment variables say which rank a process is and where the others are. A process that runs alone never
imports torch.distributed, and torch only when it is needed, because the command line imports this module.
"""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from extrapolate.errors import UserError

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ENDED = "extrapolate: how it ended was said"
_BY_TORCHRUN = "TORCHELASTIC_RUN_ID"  # in the environment only if torchrun itself started the process
LONGEST_WAIT_S, QUIET_WAIT_S = 1800.0, 3.0  # for the other processes; how long before a line says so
_LOST = ("gloo", "Connection closed by peer", "Connection reset by peer", "NCCL")

_store: Any = None  # a key-value store that processes share without waiting for one another


@dataclass(frozen=True)
class Ranks:
    """The number of processes that work together, and which of them this is, from 0."""

    rank: int = 0
    world_size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def wait(self) -> None:
        """Waits until all processes have called it."""
        if self.world_size > 1:
            import torch.distributed as dist

            dist.barrier()

    def from_first(self, make: Callable[[], T]) -> T:
        """Waits for all processes, calls `make` in the first one, and returns its picklable result in all.

        An error in the first process is raised in all.
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
                plain = error if type(error) is UserError else RuntimeError(str(error))  # others can unpickle it
                dist.broadcast_object_list([None, plain])
                raise
        dist.broadcast_object_list(made)
        if made[1] is not None:
            raise made[1]
        return made[0]

    def in_turn(self, make: Callable[[], T]) -> T:
        """Calls `make` in the first process, then in the others, which find what the first has written."""
        made: list[T] = []
        self.from_first(lambda: made.append(make()))
        return made[0] if self.first else make()

    def in_first(self, made: Callable[[], AbstractContextManager[None]]) -> AbstractContextManager[None]:
        """The context in the first process, a null context in the others."""
        return made() if self.first else contextlib.nullcontext()

    def shares(self, count: int, size: int) -> list[tuple[int, int]]:
        """The ranges of `count` items for this process: batches of `size` dealt out in turn, or all if it is alone."""
        if self.world_size == 1:
            return [(0, count)]
        return [(first, min(first + size, count)) for first in range(self.rank * size, count, self.world_size * size)]

    def sums(self, *values: float) -> tuple[float, ...]:
        """Each value summed over the processes, in one message."""
        if self.world_size == 1:
            return values
        import numpy as np

        return tuple(self.add_up(np.array(values, np.float64)).tolist())

    def add_up(self, values: "np.ndarray") -> "np.ndarray":
        """The sum over the processes of an array of the same shape in each."""
        if self.world_size == 1:
            return values
        import torch
        import torch.distributed as dist

        added = torch.from_numpy(values.copy())
        dist.all_reduce(added)
        return added.numpy()


ALONE = Ranks()
_working: Ranks = ALONE


def world_size() -> int:
    """The number of processes that were started together."""
    size = os.environ["WORLD_SIZE"] if all(name in os.environ for name in _ENVIRONMENT) else ""
    return int(size) if size.isdecimal() and int(size) else 1


def work_alone() -> None:
    """Removes what says that this process has others to work with, for it and its children.

    A cluster may have left it in a pod where a person works.
    """
    for name in _ENVIRONMENT:
        os.environ.pop(name, None)


def is_first() -> bool:
    """Whether this process is the first of those that were started together, or runs alone."""
    return world_size() == 1 or os.environ["RANK"] == "0"


@contextlib.contextmanager
def quiet_unless_first() -> Iterator[None]:
    """Writes nothing to the terminal if this process is not the first of those that were started together."""
    if is_first():
        yield
        return
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield


@contextlib.contextmanager
def joined(what_next: str) -> Iterator[Ranks]:
    """Connects the processes that were started together, or gives this one alone.

    Raises RuntimeError if the others do not come, or one ends before the work is done; its message ends in `what_next`,
    which says what the user can do. All processes must see the same files: on one machine, or on a shared file system.
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
    """The processes of the enclosing `joined`; outside it, this process alone."""
    return _working


def tells_the_end() -> bool:
    """Whether this process reports how the program ended: the one that ends first does. Call it once, at the end."""
    if world_size() == 1:
        return True
    if _store is None:  # they have not met: each of torchrun's ends alike
        return is_first() or _BY_TORCHRUN not in os.environ
    import torch.distributed as dist

    atexit.unregister(dist.destroy_process_group)  # it may wait for processes that are gone
    try:
        return bool(_store.add(_ENDED, 1) == 1)
    except RuntimeError:  # the process that held the store is gone
        return True


def check_devices(device: str) -> None:
    """Raises UserError if several processes want CUDA and there is not a device for each."""
    import torch

    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device == "cuda" and world_size() > 1 and here > torch.cuda.device_count():
        raise UserError(
            f"{here} processes cannot share {torch.cuda.device_count()} CUDA devices: start one process for each "
            "device, or use `device='cpu'`"
        )


def _join() -> None:
    """Connects the processes. Each gets its own CUDA device if there are enough.

    Everything but gradients is exchanged from CPU to CPU.
    """
    import torch
    import torch.distributed as dist

    global _store
    cuda = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    met: Future[Any] = Future()

    def meet() -> None:
        try:
            store, rank, count = next(dist.rendezvous("env://", timeout=timedelta(seconds=LONGEST_WAIT_S)))
            dist.init_process_group(backend, store=store, rank=rank, world_size=count)
            met.set_result(store)
        except Exception as error:
            met.set_exception(error)

    who = f"the other {'process' if world_size() == 2 else f'{world_size() - 1} processes'} of WORLD_SIZE"
    who += f" at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    alone = "to run in this process alone, unset RANK and WORLD_SIZE"
    threading.Thread(target=meet, daemon=True).start()  # in the main thread it would not let Ctrl-C through
    if wait([met], QUIET_WAIT_S).not_done:  # sys.stderr shows nothing unless this is the first process
        longest = f"{LONGEST_WAIT_S / 60:g} min"
        print(f"waiting up to {longest} for {who}; {alone}", file=sys.__stderr__, flush=True)
    try:
        _store = met.result()
    except Exception as error:
        raise RuntimeError(f"{who} did not come ({error}): start all of them, or {alone}") from error
    atexit.register(dist.destroy_process_group)
