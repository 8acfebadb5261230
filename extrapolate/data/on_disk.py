"""State of tokenising that grows with the source, kept on disk instead of in memory."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

CACHE_KIB = 64 * 1024


class Seen:
    """An on-disk set of SHA-256 digests, for exact deduplication. The file is of no use once this process ends.

    Raises OSError if the disk is full or fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        path.touch()  # if this fails, the error says why, which the library's does not
        # Without locks, which some disks lack: no other process knows the file.
        uri = f"{path.absolute().as_uri()}?vfs=unix-none"
        self._base = sqlite3.connect(uri, uri=True, isolation_level=None)
        # A resuming process starts a new file, so nothing has to be durable.
        for setting in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{CACHE_KIB}"):
            self._execute(f"PRAGMA {setting}")
        self._execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._execute("BEGIN")

    def add(self, digest: bytes) -> bool:
        """Adds a digest. Returns whether it is new."""
        return self._execute("INSERT OR IGNORE INTO seen VALUES (?)", digest) == 1

    def _execute(self, statement: str, *values: bytes) -> int:
        """Returns the number of changed rows."""
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
    """An array of records in a file that only grows. `count`: how many are already there."""

    def __init__(self, path: Path, dtype: np.dtype, count: int) -> None:
        self.dtype, self.count, self._path = dtype, count, path
        self._file = path.open("ab")
        self._file.truncate(count * dtype.itemsize)

    def add(self, records: np.ndarray) -> None:
        """Appends records."""
        self._file.write(records.tobytes())
        self.count += len(records)

    def sync(self) -> None:
        """Makes all records durable."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def parts(self, at_once: int) -> Iterator[np.ndarray]:
        """All records in order, up to `at_once` at a time."""
        self._file.flush()
        with self._path.open("rb") as file:
            while content := file.read(at_once * self.dtype.itemsize):
                yield np.frombuffer(content, self.dtype)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
