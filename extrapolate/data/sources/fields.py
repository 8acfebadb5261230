"""The text of one row of a table: a line of JSON, a row of Parquet, of a dataset."""

from collections.abc import Mapping, Sequence

from extrapolate.errors import UserError


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


def missing(field: str, names: Sequence[str], place: str) -> str:
    """What to say where a table has no such field."""
    return f"{place} has no '{field}'; it has {', '.join(names) or 'nothing'}: choose one with `text_field`"
