"""Local files: which ones a path means, and what a kind of file is."""

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from extrapolate import specs
from extrapolate.data.documents import Document, check_size, fingerprint
from extrapolate.data.sources.base import form, sources
from extrapolate.errors import UserError


class FileKind(ABC):
    """How files with one suffix are read."""

    @classmethod
    @abstractmethod
    def documents(cls, file: Path, name: str, text_field: str) -> Iterator[Document]:
        """The documents of a file. `name` begins their ids; `text_field` is the column of text, where there are any.

        Raises UserError, naming the file and the place in it, where it cannot be read.
        """

    @classmethod
    def size(cls, file: Path, text_field: str) -> int:
        """About how many bytes of text a file has."""
        return file.stat().st_size


kinds: specs.Registry[FileKind] = specs.Registry("kind of file")  # by suffix: ".txt"


class LocalFiles:
    """A file, every file of a folder that can be read, or the files that a glob matches, sorted by their paths."""

    def __init__(self, spec: str, text_field: str) -> None:
        self.text_field = text_field
        if "\0" in spec:
            raise _no_source(spec)
        spec = os.path.expanduser(spec)
        path = Path(spec)
        suffixes = kinds.names()
        if os.path.isdir(spec):  # unlike Path's it takes what can be no path
            self.root, self.files = (
                path,
                sorted(p for p in path.rglob("*") if p.suffix in suffixes and p.is_file()),
            )
            if not self.files:
                raise UserError(f"{spec} holds no {', '.join(suffixes)} file")
        elif os.path.isfile(spec):
            self.root, self.files = path.parent, [path]
        else:
            self.root = Path()
            self.files = sorted(p for p in map(Path, glob.glob(spec, recursive=True)) if p.is_file())
            if not self.files:
                raise _no_source(spec)
        for file in self.files:
            if file.suffix not in suffixes:
                raise UserError(f"{file}: cannot read '{file.suffix}' files; expected {', '.join(suffixes)}")
            if file.stat().st_size == 0:
                raise UserError(f"{file} is empty; remove it or name the files to use")

    def __iter__(self) -> Iterator[Document]:
        for file in self.files:
            name = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else file.as_posix()
            yield from map(check_size, kinds[file.suffix].documents(file, _spelt(name), self.text_field))

    def fingerprint(self) -> str:
        """Another one where a file is another, or was changed."""
        return fingerprint(self.files)

    def size(self) -> int:
        """About how many bytes of text there are."""
        return sum(kinds[file.suffix].size(file, self.text_field) for file in self.files)


def _no_source(spec: str) -> UserError:
    named = ", ".join(map(form, sources.names()))
    return UserError(f"no source '{specs.shown(spec)}': not {named}, a file, a folder, or a glob that matches")


def _spelt(name: str) -> str:
    """A file's name as text: bytes that are not UTF-8 as `\\xff`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def decoded(raw: bytes, place: str) -> str:
    """Bytes as text. Raises UserError, naming the place, where they are binary or not UTF-8."""
    if b"\0" in raw:
        raise UserError(f"{place} is binary, not text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{place} is not UTF-8 text: {error}") from error
