"""What a source with a name is. Everything that no name begins is a path: see `sources/local`."""

from abc import ABC, abstractmethod
from typing import ClassVar

from extrapolate import specs
from extrapolate.data.documents import Source


class NamedSource(ABC):
    """A source that is opened as `name`, or as `name:ARGUMENT`."""

    argument: ClassVar[str] = ""  # what stands after the colon, as messages show it; "" where the name is all

    @classmethod
    @abstractmethod
    def open(cls, argument: str, text_field: str) -> Source:
        """The documents. `argument` is what stands after the colon, "" where there is nothing.

        `text_field` is the column of text, for sources of rows. Raises UserError if there is no such source.
        """


sources: specs.Registry[NamedSource] = specs.Registry("source")


def form(name: str) -> str:
    """How a source is asked for: `stdlib`, or `hf:NAME`."""
    return f"{name}:{sources[name].argument}" if sources[name].argument else name
