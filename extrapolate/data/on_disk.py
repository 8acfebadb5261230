"""What tokenising a source of any size must remember, on disk and in little memory."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

CACHE_KIB = 64 * 1024


class Seen:
    """On-disk set of SHA-256 digests, for exact deduplication. The file is of no use once this process ends.

    Raises OSError if the disk is full or fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        path.touch()  # its error says why, if there can be no file: the library's does not
        self._base = sqlite3.connect(path, isolation_level=None)
        # A process that resumes makes it anew, so nothing has to be on the disk before its memory is needed.
        for setting in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{CACHE_KIB}"):
            self._execute(f"PRAGMA {setting}")
        self._execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._execute("BEGIN")

    def add(self, digest: bytes) -> bool:
        """Whether the digest is new. It is there from now on."""
        return self._execute("INSERT OR IGNORE INTO seen VALUES (?)", digest) == 1

    def _execute(self, statement: str, *values: bytes) -> int:
        """Returns how many rows it changed."""
        try:
            return self._base.execute(statement, values).rowcount
        except sqlite3.OperationalError as error:
            number = errno.ENOSPC if error.sqlite_errorcode == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(number, os.strerror(number), str(self._path)) from error

    def close(self) -> None:
        """Removes the file."""
        self._base.close()
        self._path.unlink(missing_ok=True)


class Records:
    """Array in a file that only grows: the first `count` records are there already. `dtype`: of a record."""

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
        """All of them in order, up to `at_once` at a time."""
        self._file.flush()
        with self._path.open("rb") as file:
            while content := file.read(at_once * self.dtype.itemsize):
                yield np.frombuffer(content, self.dtype)

    def close(self) -> None:
        """Nothing more is added."""
        self._file.close()
