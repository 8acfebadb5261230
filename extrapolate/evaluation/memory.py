"""Retries work that ran out of memory with less of it at a time."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from extrapolate.model.attention import ResolvedPlan

T = TypeVar("T")
_ASKED = re.compile(r"(?i)(?:tried|unable) to allocate ([0-9.]+ ?\w+)")
MEMORY = "memory does not suffice"  # why a row has no loss


class OutOfMemoryError(RuntimeError):
    """Memory does not suffice for a single window with one query at a time.

    length: of the window, tokens. asked: the last allocation that failed, in the allocator's words.
    """

    def __init__(self, length: int, asked: str) -> None:
        wanted = f": {asked} more were asked for" if asked else ""
        super().__init__(f"memory does not suffice for a window of {length} tokens{wanted}")
        self.length = length


class ShrinkOnOOM:
    """How much is computed at a time: a number of windows of `length` tokens, with the model's setting for a plan."""

    def __init__(self, length: int, windows: int, setting: Any) -> None:
        self.length, self.windows, self.setting = length, windows, setting

    def enough_for(self, work: Callable[[int, Any], T]) -> T:
        """Returns `work(windows, setting)`, and tries again with half as much if memory does not suffice.

        Halves the windows first; with a single window, the queries in a chunk of attention. Raises OutOfMemoryError
        if one window and one query do not fit.
        """
        while True:
            try:
                return work(self.windows, self.setting)
            except (MemoryError, RuntimeError) as error:
                if not of_memory(error):
                    raise
                asked = _ASKED.search(str(error))
            # The error is gone here, and with it the tensors that its traceback held.
            if self.windows > 1:
                self.windows //= 2
                continue
            self.setting = self.setting.smaller() if isinstance(self.setting, ResolvedPlan) else None
            if self.setting is None:
                raise OutOfMemoryError(self.length, asked[1] if asked else "")


def of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory: Python's and NumPy's, a GPU's, or torch's on a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
