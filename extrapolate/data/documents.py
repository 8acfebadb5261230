"""A document, and what every source of them is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from extrapolate.errors import UserError
from extrapolate.machine.limits import memory_limit

# What tokenising a text takes for each of its bytes: 130 to 160 with a byte-level BPE of tokenizers 0.23. Where that
# library runs out of memory it ends the whole process.
BYTES_A_BYTE = 100


@dataclass(frozen=True)
class Document:
    """One text. Its id says where it came from and is unique in its source."""

    id: str
    text: str


class Source(Protocol):
    """Documents in a fixed order; each iteration starts anew."""

    def __iter__(self) -> Iterator[Document]: ...


def check_size(document: Document) -> Document:
    """The document itself. Raises UserError, naming it, where tokenising it takes more memory than there is."""
    size, limit = len(document.text.encode()), memory_limit()
    if size * BYTES_A_BYTE > limit:
        raise UserError(
            f"{document.id} has {size / 1e6:,.0f} MB of text: to tokenise it takes at least "
            f"{size * BYTES_A_BYTE / 1e9:,.1f} GB of memory, and this machine has {limit / 1e9:,.1f} GB: cut it into "
            "several documents"
        )
    return document
