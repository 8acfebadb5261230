"""JSON Lines."""

import json
from collections.abc import Iterator
from pathlib import Path

from extrapolate.data.documents import Document
from extrapolate.data.sources.fields import text_of
from extrapolate.data.sources.local.base import FileKind, decoded, kinds
from extrapolate.errors import UserError


@kinds.register(".jsonl")
class JsonLines(FileKind):
    """Every line is a JSON object with a field of text, UTF-8: a document. Empty lines are left out."""

    @classmethod
    def documents(cls, file: Path, name: str, text_field: str) -> Iterator[Document]:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                place = f"{file}, line {number}"
                text = decoded(line, place)
                if not text.strip():
                    continue
                try:
                    row = json.loads(text)
                except json.JSONDecodeError as error:
                    raise UserError(f"{place} is not valid JSON: {error}") from error
                if not isinstance(row, dict):
                    raise UserError(f"{place} is not a JSON object")
                yield Document(f"{name}:{number}", text_of(row, text_field, place))
