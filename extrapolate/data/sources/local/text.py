"""Plain text and Markdown."""

from collections.abc import Iterator

from extrapolate.data.documents import Document
from extrapolate.data.sources.local.base import FileKind, LocalFile, decoded_file, kinds


@kinds.register(".txt")
@kinds.register(".md")
class TextFile(FileKind):
    """The file is one UTF-8 document."""

    @classmethod
    def documents(cls, file: LocalFile, name: str, text_field: str) -> Iterator[Document]:
        yield Document(name, decoded_file(file))
