"""Documents into the Arrow files of a token store."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from extrapolate import files
from extrapolate.data import shards

SHARD_TOKENS = 2**24  # in a file, unless a single document has more
BATCH_TOKENS = 2**20  # in a record batch


class Shards:
    """Writes the documents of one split into files `NAME-00000.arrow`, and counts them.

    names: the files that are there already; part: what they hold, as the manifest says it.
    """

    def __init__(self, folder: Path, name: str, dtype: str, names: list[str], part: dict[str, int]) -> None:
        self._folder, self._name, self._dtype, self._schema = folder, name, np.dtype(dtype), shards.schema(dtype)
        self.names, self.part = list(names), dict(part)
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._rows: list[tuple[str, int, bytes]] = []
        self._pending = self._in_file = 0  # tokens

    def add(self, document_id: str, size: int, tokens: bytes) -> None:
        """One document: its id, its size in bytes, and its tokens as bytes of their type, with the end of text."""
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
        """What comes next goes into another file; this one is on the disk."""
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
    """What a file holds, as the manifest says it."""
    return {"bytes": path.stat().st_size, "sha256": shards.sha256(path)}
