"""Which documents were there before, whatever their number: on disk, in little memory."""

import errno
import os
import sqlite3
from pathlib import Path

CACHE_KIB = 64 * 1024


class Seen:
    """A set of SHA-256 digests, in a file of its own, which nobody reads again.

    Raises OSError where the disk is full or fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        path.touch()  # its error says why, if there can be no file: the library's does not
        self._base = sqlite3.connect(path, isolation_level=None)
        # It is made anew by whoever goes on: nothing has to be on the disk before its memory is needed.
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
