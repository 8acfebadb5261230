"""Local files: finding them by path, and the kinds of files that can be read."""

import importlib.util
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import IO, Any, ClassVar

from extrapolate import specs
from extrapolate.data.documents import Document, Files, check_size
from extrapolate.data.sources.base import form, sources
from extrapolate.data.sources.local._paths import Found
from extrapolate.errors import UserError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # by the suffix after that of the kind of file: a.txt.gz
_BUFFER_BYTES = 2**20


class LocalFile:
    """A file whose content may be compressed. `str` gives its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.compression = COMPRESSIONS.get(path.suffix)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def suffix(self) -> str:
        """The suffix of the kind of file, without that of the compression: ".txt"."""
        return Path(self.path.stem).suffix if self.compression else self.path.suffix

    def open(self, mode: str = "r", encoding: str = "utf-8", newline: str | None = None) -> IO[Any]:
        """Opens the content for reading from its beginning, as `Path.open` does: as text ("r") or bytes ("rb").

        If the file is compressed, raises UserError, now or during reading, if it is damaged, empty or of another kind.
        """
        content: IO[bytes] = self.path.open("rb")
        if self.compression:
            content = io.BufferedReader(_Decompressed(self), _BUFFER_BYTES)
            if not content.peek(1):
                raise UserError(f"{self} has nothing in it; remove it or name the files to use")
        return content if mode == "rb" else io.TextIOWrapper(content, encoding, newline=newline)

    def read_bytes(self) -> bytes:
        """The whole content. Raises what `open` does."""
        with self.open("rb") as content:
            return content.read()


class _Decompressed(io.RawIOBase):
    """The content of a compressed file."""

    def __init__(self, file: LocalFile) -> None:
        import pyarrow as pa

        self._file = file
        self._stream = pa.input_stream(str(file.path), compression=file.compression, buffer_size=_BUFFER_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content: bytes = self._stream.read(len(buffer))
        except OSError as error:
            if "too much memory" in str(error):
                raise UserError(
                    f"{self._file} was compressed with a window of {_window(self._file.path)}, and up to 128 MiB "
                    f"are read here: decompress it first, with: zstd -d --long=31 {quote(str(self._file))}"
                ) from error
            raise UserError(f"{self._file} is not a {self._file.compression} file, or is damaged: {error}") from error
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _window(path: Path) -> str:
    """The memory that a Zstandard file needs to be decompressed, from its first frame's header (RFC 8878, 3.1.1.1)."""
    with path.open("rb") as file:
        header = file.read(6)
    if not header.startswith(b"\x28\xb5\x2f\xfd") or header[4] & 0x20:  # no frame, or it is as large as its content
        return "more than 128 MiB"
    base = 2 ** (10 + (header[5] >> 3))
    size = base + base // 8 * (header[5] & 7)
    return f"{size / 2**30:g} GiB" if size >= 2**30 else f"{size / 2**20:g} MiB"


class FileKind(ABC):
    """Reads files with one suffix."""

    compressible: ClassVar[bool] = True  # whether it is read from beginning to end, so that it may be compressed
    needs: ClassVar[str] = ""  # the package that reads it, which the extra `texts` installs

    @classmethod
    @abstractmethod
    def documents(cls, file: LocalFile, name: str, text_field: str) -> Iterator[Document]:
        """The documents of a file. `name` begins their ids; `text_field` is the column of text, if it has columns.

        Raises UserError, naming the file and the place in it, if it cannot be read.
        """

    @classmethod
    def size(cls, file: LocalFile, text_field: str) -> int:
        """The approximate number of bytes of text in an uncompressed file."""
        return file.path.stat().st_size


kinds: specs.Registry[FileKind] = specs.Registry("kind of file")  # by suffix: ".txt"


class LocalFiles(Files):
    """A file, every readable file of a folder, or the files that a glob matches, sorted by their paths.

    Files may be compressed: `a.txt.gz` is read like `a.txt`. Linked folders are read like others, each once; names that
    begin with a dot are skipped.
    """

    def __init__(self, spec: str, text_field: str) -> None:
        self.text_field = text_field
        if "\0" in spec:
            raise _no_source(spec)
        spec = os.path.expanduser(spec)
        path = Path(spec)
        if os.path.isdir(spec):  # unlike Path's, it accepts any text
            self.root = path
            matched = Found(path, ["**"])
            found = [p for p in matched.paths() if _readable(p) and p.is_file()]
            if not found:
                raise UserError(f"{spec} holds no {', '.join(kinds.names())} file")
        elif os.path.isfile(spec):
            self.root, found, matched = path.parent, [path], Found(path, [])
        else:
            self.root = Path()
            matched = Found(Path(path.anchor), path.relative_to(path.anchor).parts)
            found = [p for p in matched.paths() if os.path.isfile(p)]
            if not found:
                raise _no_source(spec)
        left_out = {p: why for p, why in matched.skipped.items() if p.is_dir() or _readable(p)}
        self.skipped = replace(matched, skipped=left_out).counts()
        self.files = [LocalFile(path) for path in found]
        for file in self.files:
            _check(file)

    def __iter__(self) -> Iterator[Document]:
        for file in self.files:
            yield from map(check_size, kinds[file.suffix].documents(file, self._name(file), self.text_field))

    def _name(self, file: LocalFile) -> str:
        """The beginning of its documents' ids: its path in the source, with bytes that are not UTF-8 as `\\xff`."""
        path = file.path.relative_to(self.root) if file.path.is_relative_to(self.root) else file.path
        return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")

    def named(self) -> list[tuple[str, Path]]:
        return [(self._name(file), file.path) for file in self.files]

    def size(self) -> int | None:
        """The approximate number of bytes of text; None if some files are compressed."""
        if any(file.compression for file in self.files):
            return None
        return sum(kinds[file.suffix].size(file, self.text_field) for file in self.files)


def _readable(path: Path) -> bool:
    """Whether a file's name says that it is of a kind that can be read."""
    return LocalFile(path).suffix in kinds.names()


def _check(file: LocalFile) -> None:
    """Raises UserError if a file cannot be read, as far as can be told without opening it."""
    if file.suffix not in kinds.names():
        compressed = f"; each may be compressed, as in .txt{' or .txt'.join(COMPRESSIONS)}"
        raise UserError(
            f"{file}: cannot read '{''.join(file.path.suffixes[-2:]) if file.compression else file.suffix}' files; "
            f"expected {', '.join(kinds.names())}{compressed}"
        )
    kind = kinds[file.suffix]
    if file.compression and not kind.compressible:
        raise UserError(f"{file}: a {file.suffix} file is compressed in itself; decompress what is around it")
    if kind.needs and importlib.util.find_spec(kind.needs) is None:
        raise UserError(
            f"{file}: to read {file.suffix} files takes {kind.needs}; install it with: pip install 'extrapolate[texts]'"
        )
    if file.path.stat().st_size == 0:
        raise UserError(f"{file} is empty; remove it or name the files to use")


def _no_source(spec: str) -> UserError:
    named = ", ".join(map(form, sources.names()))
    return UserError(f"no source '{specs.truncate(spec)}': not {named}, a file, a folder, or a glob that matches")


def decoded(raw: bytes, place: str) -> str:
    """Bytes as text. Raises UserError, naming the place, if they are binary or not UTF-8."""
    if b"\0" in raw:
        raise UserError(f"{place} is binary, not text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{place} is not UTF-8 text: {error}") from error


def holds_text(text: str, file: LocalFile) -> str:
    """Returns the text. Raises UserError, naming the file, if it is only white space."""
    if not text.strip():
        raise UserError(f"{file} has no text in it; remove it or name the files to use")
    return text


def decoded_file(file: LocalFile) -> str:
    """A whole file as text. Raises UserError, naming it, if it is binary, not UTF-8, or too large."""
    try:
        return decoded(file.read_bytes(), str(file))
    except MemoryError:
        raise UserError(f"{file} is larger than memory suffices for: cut it into several files") from None
