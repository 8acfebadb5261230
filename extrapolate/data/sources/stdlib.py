"""The corpus that comes with Python."""

import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from extrapolate.data.documents import Document, Files
from extrapolate.data.sources.base import NamedSource, sources
from extrapolate.errors import UserError


@sources.register("stdlib")
class StandardLibrary(Files, NamedSource):
    """The sources of the running Python's standard library, without its tests: real text, nothing downloaded."""

    # Tests and what distributions add, so that the corpus differs little between builds. And generated tables: code
    # pages repeat each other, so a held-out one would also be in the training text.
    EXCLUDED = frozenset(
        {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "_bundled", "lib-dynload"}
        | {"encodings", "pydoc_data", "entities.py"}
    )

    def __init__(self) -> None:
        self.root = Path(sysconfig.get_path("stdlib"))
        self.files = sorted(
            path
            for path in self.root.rglob("*.py")
            if not self.EXCLUDED.intersection(path.relative_to(self.root).parts)
            and not path.name.startswith("_sysconfigdata")
            and path.stat().st_size > 0
        )
        if not self.files:
            raise UserError(
                f"this Python has no standard-library sources at {self.root} (a zipped or stripped build?); "
                "name a source of your own: extrapolate tokenize FOLDER --out DIR"
            )

    @classmethod
    def open(cls, argument: str, text_field: str) -> "StandardLibrary":
        return cls()

    def __iter__(self) -> Iterator[Document]:
        for name, path in self.named():
            with tokenize.open(path) as file:
                yield Document(name, file.read())

    def named(self) -> list[tuple[str, Path]]:
        return [(path.relative_to(self.root).as_posix(), path) for path in self.files]

    def size(self) -> int:
        """The number of bytes of text."""
        return sum(path.stat().st_size for path in self.files)
