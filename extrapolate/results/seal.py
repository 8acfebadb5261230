"""A Parquet file that has the hash of itself in its metadata: any change of any byte is seen."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from extrapolate import files

_ENTRY = b"extrapolate_sha256"
_DIGITS = 64
_BLANK = b"0" * _DIGITS  # what stands for the hash where the hash is computed
# The entry as Parquet's metadata has it (Thrift's compact protocol): a name, then a text and its length.
_MARK = _ENTRY + bytes([0x18, _DIGITS])


def write(path: Path, data: pa.Table) -> None:
    """Writes a table with its seal, atomically. Other programs read it as any Parquet file."""
    sink = pa.BufferOutputStream()
    blank = data.replace_schema_metadata((data.schema.metadata or {}) | {_ENTRY: _BLANK})
    pq.write_table(blank, sink, write_page_checksum=True)
    content = bytearray(sink.getvalue())
    place = _place(content)
    assert place is not None
    assert content[place : place + _DIGITS] == _BLANK
    content[place : place + _DIGITS] = _hash(content, place)
    files.write_bytes(path, memoryview(content))


def holds(content: bytes) -> bool | None:
    """Whether a file's content is what was sealed; None where it has no seal."""
    place = _place(content)
    return None if place is None else content[place : place + _DIGITS] == _hash(content, place)


def _place(content: bytes | bytearray) -> int | None:
    """Where the digits of the seal begin. The metadata is at the end of a file, after all values."""
    found = content.rfind(_MARK)
    return None if found < 0 else found + len(_MARK)


def _hash(content: bytes | bytearray, place: int) -> bytes:
    view = memoryview(content)
    digest = hashlib.sha256(view[:place])
    digest.update(_BLANK)
    digest.update(view[place + _DIGITS :])
    return digest.hexdigest().encode()
