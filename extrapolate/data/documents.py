"""Documents and their sources."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from extrapolate.errors import UserError
from extrapolate.machine.limits import memory_limit

T = TypeVar("T")
# Tokenising takes 130 to 160 bytes of memory per byte of text with a byte-level BPE of tokenizers 0.23. If that library
# runs out of memory, it ends the whole process.
BYTES_A_BYTE = 100
OTHER = "other"


@dataclass(frozen=True)
class Document:
    """One text. Its id says where it came from and is unique in its source.

    split: the value of the source's own column `split`: `train`, `validation` or `test`; OTHER for anything else, None
    without such a column.
    """

    id: str
    text: str
    split: str | None = None


class Source(Protocol):
    """Documents in a fixed order; each iteration starts from the first."""

    def __iter__(self) -> Iterator[Document]: ...


@runtime_checkable
class Lasting(Source, Protocol):
    """A source that can tell whether it has changed, so that it need not be read again."""

    def fingerprint(self) -> str | None:
        """Changes if any document may have changed on this machine; None if unknown. Reads no file."""

    def content(self) -> str | None:
        """Changes if any document changes, and is the same on every machine; None if unknown."""

    def size(self) -> int | None:
        """The approximate number of bytes of text; None if unknown."""


class Files(ABC):
    """A source that reads files, and can tell whether they have changed: see `Lasting`.

    skipped: how many files and folders are not read, and why; empty if all are.
    """

    skipped: str = ""

    @abstractmethod
    def named(self) -> list[tuple[str, Path]]:
        """The files in order, each with its name in the ids of documents."""

    def fingerprint(self) -> str:
        """A hash of the files' paths, sizes and times, in order."""
        identity = hashlib.sha256()
        for _, path in self.named():
            found = path.stat()
            identity.update(f"{str(path.absolute())!r} {found.st_size} {found.st_mtime_ns}\n".encode())
        return identity.hexdigest()

    def content(self) -> str:
        """The SHA-256 of the files' names and contents, in order. Their folder and their times do not matter."""
        identity = hashlib.sha256()
        for name, path in self.named():
            with path.open("rb") as file:
                identity.update(f"{name!r} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return identity.hexdigest()


def check_size(document: Document) -> Document:
    """Returns the document. Raises UserError, naming it, if tokenising it takes more memory than there is."""
    size, limit = len(document.text.encode()), memory_limit()
    if size * BYTES_A_BYTE > limit:
        raise UserError(
            f"{document.id} has {size / 1e6:,.0f} MB of text: to tokenise it takes at least "
            f"{size * BYTES_A_BYTE / 1e9:,.1f} GB of memory, and this machine has {limit / 1e9:,.1f} GB: cut it into "
            "several documents"
        )
    return document


def first(items: Iterator[T], limit: int, size: Callable[[T], int]) -> tuple[list[T], bool]:
    """Takes items until their sizes add up to `limit`. Returns them, and whether there were enough."""
    taken, total = [], 0
    for item in items:
        taken.append(item)
        total += size(item)
        if total >= limit:
            return taken, True
    return taken, False
