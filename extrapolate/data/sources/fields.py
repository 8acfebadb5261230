"""The text of one row of a table, and its split: a line of JSON, a row of Parquet, of a dataset."""

from collections.abc import Mapping, Sequence

from extrapolate.data.documents import OTHER
from extrapolate.errors import UserError

SPLIT = "split"  # the column
_SPLITS = {"train": "train", "test": "test"} | dict.fromkeys(["validation", "valid", "val", "dev"], "validation")


def text_of(row: Mapping[str, object], field: str, place: str) -> str:
    """The text in a row's field. Raises UserError, naming the place, where there is none or it cannot be encoded."""
    if field not in row:
        raise UserError(missing(field, list(row), place))
    text = row[field]
    if not isinstance(text, str):
        raise UserError(f"{place}: '{field}' is {type(text).__name__}, not text")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
        raise UserError(f"{place}: '{field}' is not valid Unicode: {error}") from error
    return text


def split_of(row: Mapping[str, object], field: str) -> str | None:
    """What the row's column `split` says, as `Document` has it; `field` is the column of text."""
    if SPLIT not in row or field == SPLIT:
        return None
    named = row[SPLIT]
    return _SPLITS.get(named, OTHER) if isinstance(named, str) else OTHER


def missing(field: str, names: Sequence[str], place: str) -> str:
    """What to say where a table has no such field."""
    return f"{place} has no '{field}'; it has {', '.join(names) or 'nothing'}: choose one with `text_field`"
