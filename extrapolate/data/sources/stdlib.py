"""The embedded corpus."""

import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from extrapolate.data.documents import Document, content, fingerprint
from extrapolate.data.sources.base import NamedSource, sources
from extrapolate.errors import UserError


@sources.register("stdlib")
class StandardLibrary(NamedSource):
    """The sources of the running Python's standard library, without its tests: real text, nothing downloaded."""

    # Tests, and what distributions add: the corpus should differ between builds as little as it can. And generated
    # tables: the code pages repeat each other, so that a held-out one would stand in the training text as well.
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
        for path in self.files:
            with tokenize.open(path) as file:
                yield Document(self._name(path), file.read())

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def fingerprint(self) -> str:
        """A hash of the files' paths, sizes and times, in order."""
        return fingerprint(self.files)

    def content(self) -> str:
        """The SHA-256 of the files' names in the library and of what they hold."""
        return content((self._name(path), path) for path in self.files)

    def size(self) -> int:
        """How many bytes of text there are."""
        return sum(path.stat().st_size for path in self.files)
