"""Plain text and Markdown."""

from collections.abc import Iterator
from pathlib import Path

from extrapolate.data.documents import Document
from extrapolate.data.sources.local.base import FileKind, decoded, kinds
from extrapolate.errors import UserError


@kinds.register(".txt")
@kinds.register(".md")
class TextFile(FileKind):
    """The file is one document, UTF-8."""

    @classmethod
    def documents(cls, file: Path, name: str, text_field: str) -> Iterator[Document]:
        try:
            text = decoded(file.read_bytes(), str(file))
        except MemoryError:
            raise UserError(f"{file} is larger than memory suffices for: cut it into several files") from None
        yield Document(name, text)
