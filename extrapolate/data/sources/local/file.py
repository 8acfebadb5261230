"""A local file, compressed or not: what is in it."""

import io
from pathlib import Path
from typing import IO, Any

from extrapolate.errors import UserError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # by suffix, which stands after that of the kind of file: a.txt.gz
_BUFFER_BYTES = 2**20


class LocalFile:
    """A file whose content may be compressed. As text it is its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.compression = COMPRESSIONS.get(path.suffix)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def suffix(self) -> str:
        """That of the kind of file, without that of the compression: ".txt"."""
        return Path(self.path.stem).suffix if self.compression else self.path.suffix

    def open(self, mode: str = "r", encoding: str = "utf-8", newline: str | None = None) -> IO[Any]:
        """What is in it, as `Path.open` gives it, for reading from its beginning: text ("r") or bytes ("rb").

        Raises UserError, now or while it is read, where it is not what its name says, damaged, or empty.
        """
        content: IO[bytes] = self.path.open("rb")
        if self.compression:
            content = io.BufferedReader(_Decompressed(self), _BUFFER_BYTES)
            if not content.peek(1):
                raise UserError(f"{self} has nothing in it; remove it or name the files to use")
        return content if mode == "rb" else io.TextIOWrapper(content, encoding, newline=newline)

    def read_bytes(self) -> bytes:
        """All that is in it. Raises what `open` does."""
        with self.open("rb") as content:
            found: bytes = content.read()
        return found


class _Decompressed(io.RawIOBase):
    """What is in a compressed file."""

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
            raise UserError(f"{self._file} is not a {self._file.compression} file, or is damaged: {error}") from error
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()
