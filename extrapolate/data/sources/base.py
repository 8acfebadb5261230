"""Sources with a name, and reading the text of a row. A spec that begins with no such name is a path."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from extrapolate import specs
from extrapolate.data.documents import OTHER, Source
from extrapolate.errors import UserError


class NamedSource(ABC):
    """A source that is opened as `name`, or as `name:ARGUMENT`."""

    argument: ClassVar[str] = ""  # the part after the colon, as messages show it; "" if there is none

    @classmethod
    @abstractmethod
    def open(cls, argument: str, text_field: str) -> Source:
        """Opens the source. `argument` is the part after the colon, or "".

        `text_field` is the column of text, for sources of rows. Raises UserError if there is no such source.
        """


sources: specs.Registry[NamedSource] = specs.Registry("source")


def form(name: str) -> str:
    """How to write a source: `stdlib`, or `hf:NAME`."""
    return f"{name}:{sources[name].argument}" if sources[name].argument else name


SPLIT = "split"  # the column
_SPLITS = {"train": "train", "test": "test"} | dict.fromkeys(["validation", "valid", "val", "dev"], "validation")


def text_of(row: Mapping[str, object], field: str, place: str) -> str:
    """The text in a row's field; "" if it is null, as in rows that a filter has emptied: stores leave them out.

    Raises UserError, naming the place, if the field is missing, not text, or cannot be encoded.
    """
    if field not in row:
        raise UserError(missing(field, list(row), place))
    text = row[field]
    if text is None or text != text:  # pandas also writes NaN
        return ""
    if not isinstance(text, str):
        raise UserError(f"{place}: '{field}' is {type(text).__name__}, not text")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
        raise UserError(f"{place}: '{field}' is not valid Unicode: {error}") from error
    return text


def split_of(row: Mapping[str, object], field: str) -> str | None:
    """The value of the row's column `split`, as in `Document`. `field` is the column of text."""
    if SPLIT not in row or field == SPLIT:
        return None
    named = row[SPLIT]
    return _SPLITS.get(named, OTHER) if isinstance(named, str) else OTHER


def missing(field: str, names: Sequence[str], place: str) -> str:
    """The message for a table without the field."""
    return f"{place} has no '{field}'; it has {', '.join(names) or 'nothing'}: choose one with `text_field`"
