"""A document, and what every source of them is."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from extrapolate.errors import UserError
from extrapolate.machine.limits import memory_limit

# What tokenising a text takes for each of its bytes: 130 to 160 with a byte-level BPE of tokenizers 0.23. If that
# library runs out of memory it ends the whole process.
BYTES_A_BYTE = 100
OTHER = "other"


@dataclass(frozen=True)
class Document:
    """One text. Its id says where it came from and is unique in its source.

    split: what the source's own column `split` says of it, `train`, `validation` or `test`; OTHER if it says something
    else, None if there is no such column.
    """

    id: str
    text: str
    split: str | None = None


class Source(Protocol):
    """Documents in a fixed order; each iteration starts anew."""

    def __iter__(self) -> Iterator[Document]: ...


@runtime_checkable
class Lasting(Source, Protocol):
    """A source that knows whether it is still the same: what was read of it need not be read again."""

    def fingerprint(self) -> str | None:
        """Changes if any document may have changed, on this machine; None if that cannot be known.

        No file is read for it.
        """

    def content(self) -> str | None:
        """Changes if any document changes, and is the same on every machine; None if that cannot be known."""

    def size(self) -> int | None:
        """About how many bytes of text there are; None if that is not known."""


def fingerprint(files: Iterable[Path]) -> str:
    """A hash of the paths, sizes and times of files, in order."""
    identity = hashlib.sha256()
    for path in files:
        found = path.stat()
        identity.update(f"{str(path.absolute())!r} {found.st_size} {found.st_mtime_ns}\n".encode())
    return identity.hexdigest()


def content(files: Iterable[tuple[str, Path]]) -> str:
    """The SHA-256 of the names and contents of files, in order. Their folder and their times do not matter.

    files: each with what the ids of its documents call it.
    """
    identity = hashlib.sha256()
    for name, path in files:
        with path.open("rb") as file:
            identity.update(f"{name!r} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return identity.hexdigest()


def check_size(document: Document) -> Document:
    """The document itself. Raises UserError, naming it, if tokenising it takes more memory than there is."""
    size, limit = len(document.text.encode()), memory_limit()
    if size * BYTES_A_BYTE > limit:
        raise UserError(
            f"{document.id} has {size / 1e6:,.0f} MB of text: to tokenise it takes at least "
            f"{size * BYTES_A_BYTE / 1e9:,.1f} GB of memory, and this machine has {limit / 1e9:,.1f} GB: cut it into "
            "several documents"
        )
    return document
