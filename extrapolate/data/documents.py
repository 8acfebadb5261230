"""A document, and what every source of them is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Document:
    """One text. Its id says where it came from and is unique in its source."""

    id: str
    text: str


class Source(Protocol):
    """Documents in a fixed order; each iteration starts anew."""

    def __iter__(self) -> Iterator[Document]: ...
