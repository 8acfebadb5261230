"""The Arrow files of a token store: written by document, and checked when they are read."""

import functools
import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from extrapolate import files
from extrapolate.errors import UserError

AGAIN = "delete the store and tokenise again"
# File systems' clocks tick every few milliseconds, and two changes within a tick have the same time.
_SETTLED_NS = 2 * 10**9


def schema(dtype: str) -> pa.Schema:
    """The columns of an Arrow file. dtype: of the tokens, `uint16` or `uint32`."""
    tokens = pa.large_list({"uint16": pa.uint16(), "uint32": pa.uint32()}[dtype])
    return pa.schema([("id", pa.string()), ("bytes", pa.int64()), ("tokens", tokens)])


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_content(path: Path, size: int, expected: str) -> None:
    """Raises UserError unless a file has this size in bytes and this SHA-256.

    A process hashes a file only once, unless its time of change is recent or has changed.
    """
    try:
        found = path.stat()
        settled = time.time_ns() - found.st_ctime_ns > _SETTLED_NS
        read = _remembered if settled else _remembered.__wrapped__
        same = found.st_size == size and expected == read(path, size, found.st_ctime_ns, found.st_dev, found.st_ino)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {AGAIN}") from None
    if not same:
        raise UserError(f"{path} is damaged: its content does not have the hash it was written with; {AGAIN}")


@functools.lru_cache(maxsize=10_000)
def _remembered(path: Path, size: int, changed_ns: int, device: int, inode: int) -> str:
    return sha256(path)


def read(path: Path, dtype: str, vocab_size: int, eos_id: int) -> list[pa.RecordBatch]:
    """The documents of an Arrow file, memory-mapped, in the batches in which they were written.

    Raises UserError if the file is damaged, a token is not below `vocab_size`, or a document does not end in `eos_id`.
    """
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        if not table.schema.equals(schema(dtype)):
            raise pa.ArrowInvalid("it has other columns than those of documents")
        table.validate(full=True)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {AGAIN}") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {str(error)[:300]}; {AGAIN}") from error
    batches = [batch for batch in table.to_batches() if batch.num_rows]
    if not all(_holds_documents(batch, vocab_size, eos_id) for batch in batches):
        raise UserError(f"{path} is damaged: it holds what is no document of this store's tokens; {AGAIN}")
    return batches


def _holds_documents(batch: pa.RecordBatch, vocab_size: int, eos_id: int) -> bool:
    tokens = batch.column("tokens")
    if any(column.null_count for column in (*batch.columns, tokens.values)):
        return False
    bounds, values = tokens.offsets.to_numpy(), tokens.values.to_numpy()
    if not (np.diff(bounds) > 0).all() or not (batch.column("bytes").to_numpy() >= 0).all():
        return False
    values = values[bounds[0] : bounds[-1]]
    return int(values.max(initial=0)) < vocab_size and bool((values[bounds[1:] - bounds[0] - 1] == eos_id).all())


SHARD_TOKENS = 2**24  # the most in a file, unless a single document has more
BATCH_TOKENS = 2**20  # in a record batch


class Shards:
    """Writes the documents of one split into files `NAME-00000.arrow`, and counts them.

    names: the files already written; part: their counts, as in the manifest.
    """

    def __init__(self, folder: Path, name: str, dtype: str, names: list[str], part: dict[str, int]) -> None:
        self._folder, self._name, self._dtype, self._schema = folder, name, np.dtype(dtype), schema(dtype)
        self.names, self.part = list(names), dict(part)
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._rows: list[tuple[str, int, bytes]] = []
        self._pending = self._in_file = 0  # tokens

    def add(self, document_id: str, size: int, tokens: bytes) -> None:
        """Adds a document: its id, its size in bytes, and its tokens with the end of text, as bytes of their type."""
        count = len(tokens) // self._dtype.itemsize
        if self._in_file + count > SHARD_TOKENS:
            self.end_file()
        self._rows.append((document_id, size, tokens))
        self._pending, self._in_file = self._pending + count, self._in_file + count
        self.part = {
            "documents": self.part["documents"] + 1,
            "tokens": self.part["tokens"] + count,
            "bytes": self.part["bytes"] + size,
            "longest_document": max(self.part["longest_document"], count - 1),
        }
        if self._pending >= BATCH_TOKENS:
            self._write()

    def end_file(self) -> None:
        """Finishes the current file and makes it durable; the next document starts another."""
        self._write()
        if self._writer is not None:
            self._writer.close()
            files.sync(self._folder / self.names[-1])
            self._writer, self._in_file = None, 0

    def _write(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self.names.append(f"{self._name}-{len(self.names):05d}.arrow")
            self._writer = pa.ipc.new_file(str(self._folder / self.names[-1]), self._schema)
        ids, sizes, tokens = zip(*self._rows, strict=True)
        ends = np.cumsum([0, *map(len, tokens)]) // self._dtype.itemsize
        values = pa.array(np.frombuffer(b"".join(tokens), self._dtype))
        column = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values)
        columns = [pa.array(ids, pa.string()), pa.array(sizes, pa.int64()), column]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows, self._pending = [], 0


EMPTY = {"documents": 0, "tokens": 0, "bytes": 0, "longest_document": 0}


def content(path: Path) -> dict[str, Any]:
    """A file's size and hash, as in the manifest."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
