"""Records of one size, in a file that only grows: more of them than memory may hold."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np


class Records:
    """The first `count` records of a file, which are there already, and those that are added. `dtype`: of a record."""

    def __init__(self, path: Path, dtype: np.dtype, count: int) -> None:
        self.dtype, self.count, self._path = dtype, count, path
        self._file = path.open("ab")
        self._file.truncate(count * dtype.itemsize)

    def add(self, records: np.ndarray) -> None:
        """Some more."""
        self._file.write(records.tobytes())
        self.count += len(records)

    def sync(self) -> None:
        """They are on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def parts(self, at_once: int) -> Iterator[np.ndarray]:
        """All of them in order, so many at a time."""
        self._file.flush()
        with self._path.open("rb") as file:
            while content := file.read(at_once * self.dtype.itemsize):
                yield np.frombuffer(content, self.dtype)

    def close(self) -> None:
        """Nothing more is added."""
        self._file.close()
