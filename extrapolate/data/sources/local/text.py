"""Plain text and Markdown."""

from collections.abc import Iterator
from pathlib import Path

from extrapolate.data.documents import Document
from extrapolate.data.sources.local.base import FileKind, decoded, kinds


@kinds.register(".txt")
@kinds.register(".md")
class TextFile(FileKind):
    """The file is one document, UTF-8."""

    @classmethod
    def documents(cls, file: Path, name: str, text_field: str) -> Iterator[Document]:
        yield Document(name, decoded(file.read_bytes(), str(file)))
