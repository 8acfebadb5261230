"""An evaluation that runs out of memory goes on with less at a time, as long as there is less."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from extrapolate.model.attention import Setting

T = TypeVar("T")
_ASKED = re.compile(r"(?i)(?:tried|unable) to allocate ([0-9.]+ ?\w+)")


MEMORY = "memory does not suffice"  # why a row has no loss


class OutOfMemoryError(RuntimeError):
    """Memory does not suffice for one window, however few queries are computed at a time.

    length is the window's, tokens, and asked the memory that was asked for last, as the allocator says it.
    """

    def __init__(self, length: int, asked: str) -> None:
        wanted = f": {asked} more were asked for" if asked else ""
        super().__init__(f"memory does not suffice for a window of {length} tokens{wanted}")
        self.length = length


class Room:
    """How much is computed at a time: a number of windows, with the model's setting."""

    def __init__(self, length: int, windows: int, setting: Any) -> None:
        """`length` is that of the windows, tokens; `setting` is what the model made of a plan."""
        self.length, self.windows, self.setting = length, windows, setting

    def enough_for(self, work: Callable[[int, Any], T]) -> T:
        """What `work(windows, setting)` gives, with half as much at a time whenever memory does not suffice.

        First half the windows; for one window alone, half the queries in a chunk of attention. Raises OutOfMemoryError
        where it is one window and one query.
        """
        while True:
            try:
                return work(self.windows, self.setting)
            except (MemoryError, RuntimeError) as error:
                if not of_memory(error):
                    raise
                asked = _ASKED.search(str(error))
            # Here the error is forgotten, and the tensors that its traceback held are free.
            self._halve(asked[1] if asked else "")

    def _halve(self, asked: str) -> None:
        if self.windows > 1:
            self.windows //= 2
            return
        smaller = self.setting.smaller() if isinstance(self.setting, Setting) else None
        if smaller is None:
            raise OutOfMemoryError(self.length, asked)
        self.setting = smaller


def of_memory(error: BaseException) -> bool:
    """Whether an error says that memory does not suffice: Python's and NumPy's, a GPU's, or torch's on a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
