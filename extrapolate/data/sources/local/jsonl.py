"""JSON Lines."""

import itertools
import json
from collections.abc import Iterator

from extrapolate.data.documents import Document
from extrapolate.data.sources.base import split_of, text_of
from extrapolate.data.sources.local.base import FileKind, LocalFile, decoded, kinds
from extrapolate.errors import UserError


@kinds.register(".jsonl")
class JsonLines(FileKind):
    """Every line is a JSON object, UTF-8, with a field of text: a document. Empty lines are skipped."""

    @classmethod
    def documents(cls, file: LocalFile, name: str, text_field: str) -> Iterator[Document]:
        with file.open("rb") as lines:
            for number in itertools.count(1):
                place = f"{file}, line {number}"
                try:
                    if not (line := lines.readline()):
                        return
                    row = _row(line, place)
                    text = None if row is None else text_of(row, text_field, place)
                except MemoryError:
                    raise UserError(
                        f"{place} is longer than memory suffices for: cut its text into several documents"
                    ) from None
                if row is not None and text is not None:
                    yield Document(f"{name}:{number}", text, split_of(row, text_field))


def _row(line: bytes, place: str) -> dict[str, object] | None:
    """The object in a line; None if the line is empty. Raises UserError, naming the place, on anything else."""
    content = decoded(line, place)
    if not content.strip():
        return None
    try:
        row = json.loads(content)
    except (ValueError, RecursionError) as error:  # not JSON, too many digits, or too many brackets
        raise UserError(f"{place} is not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise UserError(f"{place} is not a JSON object")
    return row
