"""The training log, metrics.jsonl: a line for every step and validation."""

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from extrapolate import files
from extrapolate.errors import UserError


class Log:
    """Appends rows to a file inside a `with` block, and tracks the length, bytes, and SHA-256 of its content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._hash = hashlib.sha256()
        self._file: TextIO | None = None

    @property
    def sha256(self) -> str:
        """The hash of the content."""
        return self._hash.hexdigest()

    def continue_at(self, length: int, sha256: str) -> None:
        """Truncates the file to `length` bytes: later steps are taken again. Raises UserError if their hash differs."""
        content = self._content()[:length]
        self._hash = hashlib.sha256(content)
        self.bytes = len(content)
        if self.sha256 != sha256:
            raise UserError(
                f"{self.path} is damaged, or was changed by hand, since the state beside it was saved: restore it, or "
                f"delete {self.path.parent} and train again"
            )
        files.write_bytes(self.path, content)

    def __enter__(self) -> "Log":
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, row: dict[str, Any]) -> None:
        """Writes one row."""
        assert self._file is not None
        line = json.dumps(row) + "\n"
        self._file.write(line)
        self._file.flush()
        self._hash.update(line.encode())
        self.bytes += len(line.encode())

    def sync(self) -> None:
        """Syncs the rows to disk, before a state is saved that relies on them."""
        if self._file is not None:
            files.sync(self.path)

    def check(self) -> None:
        """Raises UserError if another program has written to the file."""
        if hashlib.sha256(self._content()).hexdigest() != self.sha256:
            raise UserError(f"{self.path} was changed while the training ran: continue it with `resume=True`")

    def _content(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""


def rows_in(path: Path) -> list[dict[str, Any]]:
    """Every row of a log. Raises UserError if it is damaged."""
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; restore it, or train again in another folder") from error
