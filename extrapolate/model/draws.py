"""Random numbers that are the same every time, so that calls can be compared.

Shapes: B windows, T tokens, D channels.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Values for all random numbers in turn, so that every branch that is taken at least once in 16 calls is taken.
DRAWS = (0.001, *((number + 0.5) / 16 for number in range(16)), 0.999)
BOUNDS = (("low", "from"), ("high", "to"))  # the arguments of torch's functions for numbers between two others
aten = torch.ops.aten


def repeatable(hidden: Callable[[Tensor], Tensor], tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
    """The states, with the same random numbers every time, and torch's random state after them, which is restored."""
    with same_random_numbers(tokens_BT.device):
        return hidden(tokens_BT).detach().float(), _random_state(tokens_BT.device)


def drew(drawn: Tensor, device: torch.device) -> bool:
    """Whether random numbers were drawn, given torch's random state after them."""
    with same_random_numbers(device):
        return not torch.equal(drawn, _random_state(device))


def _random_state(device: torch.device) -> Tensor:
    return torch.cat([torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])])


def other_generators() -> tuple[object, ...]:
    """The states of Python's and NumPy's generators, which a resumed training would not restore."""
    of_numpy = np.random.get_state(legacy=False)["state"]
    return random.getstate(), of_numpy["key"].tobytes(), of_numpy["pos"]


class EqualDraws(TorchDispatchMode):
    """Inside it, all random numbers are equal, so that it does not matter how many are drawn.

    value: where all of them lie between their bounds, 0..1, or 0 and 1 if they have none. Permutations are rotations.
    """

    def __init__(self, value: float = 0.5) -> None:
        super().__init__()
        self.value = value

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded not in func.tags or not isinstance(found, Tensor):
            return found
        given = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | (kwargs or {})
        bounds = [next((given[key] for key in names if given.get(key) is not None), None) for names in BOUNDS]
        low, high = (usual if one is None else one for one, usual in zip(bounds, (0, 1), strict=True))
        if func.overloadpacket is aten.randperm:
            found.copy_(torch.arange(len(found)).roll(-math.floor(self.value * len(found))))
        elif func.overloadpacket in (aten.bernoulli, aten.bernoulli_):
            found.fill_(self.value >= 0.5)
        elif bounds[1] is not None and func.overloadpacket not in (aten.uniform, aten.uniform_):
            found.fill_(math.floor(low + self.value * (high - low)))
        elif found.is_floating_point():
            found.fill_(low + self.value * (high - low))
        return found


@contextmanager
def same_random_numbers(device: torch.device) -> Iterator[None]:
    """Inside it, torch draws the same numbers every time, on the CPU and a device; restores the random state."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":  # torch.manual_seed takes a millisecond, to record the stack for other devices
            torch.default_generator.manual_seed(0)
        else:
            torch.manual_seed(0)
        yield
