"""Tokenising: from documents to a token store, which is there whole or not at all."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from extrapolate import files
from extrapolate.data import shards
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.documents import Document, Source
from extrapolate.data.manifest import FORMAT, SPLITS, TOKENIZER
from extrapolate.data.store import HELDOUT, Store
from extrapolate.data.synthetic.base import Process
from extrapolate.errors import UserError

BATCH_CHARACTERS = 4_000_000
SHARD_TOKENS = 2**27


@dataclass(frozen=True)
class StoreSettings:
    """How a store is made. Counts are in tokens; a maximum of None means all there is."""

    source: str = "stdlib"
    text_field: str = "text"
    vocab_size: int = 2048
    tokenizer: str | None = None
    min_doc_tokens: int = 1
    max_tokens: int | None = None
    min_heldout_tokens: int = 8193


def build_store(
    source: Source,
    settings: StoreSettings,
    out: Path,
    progress: Callable[[str, int], None] = lambda stage, amount: None,
) -> Store:
    """Tokenises a source into a new store at `out`, which appears under its name only when it is whole.

    Documents shorter than min_doc_tokens and repeated documents are left out. Of the documents of at least
    min_heldout_tokens, a quarter (by hash, at most 256) become the test split, a twentieth (at most 64) the
    validation split. `progress(stage, bytes)` is called as text is read. Raises UserError on unusable input.
    """
    with files.new_folder(out) as folder:
        files.write_sealed(folder / "manifest.json", _build(source, settings, folder, progress))
    return Store.open(out)


def _build(
    source: Source, settings: StoreSettings, folder: Path, progress: Callable[[str, int], None]
) -> dict[str, Any]:
    if isinstance(source, Process):
        if settings.tokenizer is not None:
            raise UserError(f"{settings.source} has a token for every state: leave `tokenizer` out")
        tokenizer = source.tokenizer()
    elif settings.tokenizer is None:
        tokenizer = tokenizers.train_bpe(
            _texts(source, lambda size: progress("training BPE", size)), settings.vocab_size
        )
    else:
        tokenizer = tokenizers.load(settings.tokenizer)
    # A document that spells out a special token is text like any other.
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    eos = tokenizers.eos_id(tokenizer)
    assert eos is not None
    vocab_size = max(tokenizer.get_vocab().values()) + 1  # ids can have gaps
    tokenizer.save(str(folder / TOKENIZER))
    dtype = "uint16" if vocab_size <= 2**16 else "uint32"
    schema = shards.schema(dtype)

    digests: list[str] = []
    lengths: list[int] = []
    with _Shards(folder, "all", schema) as everything:
        for document_id, text, digest, tokens in _encoded(source, tokenizer, settings, progress):
            digests.append(digest)
            lengths.append(len(tokens))
            everything.add(document_id, len(text), [*tokens, eos])
    if not lengths:
        limit = "" if settings.max_tokens is None else f" within `max_tokens={settings.max_tokens}`"
        raise UserError(f"{settings.source} holds no document of at least {settings.min_doc_tokens} tokens{limit}")
    # Synthetic documents are all of one length, so that none is too short.
    longest_needed = 1 if isinstance(source, Process) else settings.min_heldout_tokens
    chosen = _choose_splits(digests, lengths, longest_needed)
    splits = {}
    for name in SPLITS:
        batches = (batch for path in everything.paths for batch in shards.read(path, dtype, vocab_size, eos))
        splits[name] = _write_split(folder, name, batches, chosen, schema)
    for path in everything.paths:
        path.unlink()
    names = [TOKENIZER, *(shard for split in splits.values() for shard in split["shards"])]
    identity = hashlib.sha256((folder / TOKENIZER).read_bytes())
    for digest, length, split in zip(digests, lengths, chosen, strict=True):
        identity.update(f"{digest} {length} {split}\n".encode())
    return {
        "format": FORMAT,
        "source": settings.source,
        "settings": vars(settings),
        "vocab_size": vocab_size,
        "eos_id": eos,
        "dtype": dtype,
        "splits": splits,
        "corpus_hash": identity.hexdigest()[:16],
        "files": {name: _kept(folder / name) for name in names},
    }


def _texts(source: Source, progress: Callable[[int], None]) -> Iterator[str]:
    for document in source:
        progress(len(document.text))
        yield document.text


def _encoded(
    source: Source, tokenizer: Tokenizer, settings: StoreSettings, progress: Callable[[str, int], None]
) -> Iterator[tuple[str, bytes, str, list[int]]]:
    """Id, text, hash and tokens of what goes into the store; encoded in batches that keep every core busy."""
    seen: set[str] = set()
    budget = settings.max_tokens
    for batch in _batches(source):
        encodings = tokenizers.encode(tokenizer, [document.text for document in batch])
        for document, encoding in zip(batch, encodings, strict=True):
            progress("tokenising", len(document.text))
            text = document.text.encode()
            digest = hashlib.sha256(text).hexdigest()
            if digest in seen or len(encoding.ids) < max(1, settings.min_doc_tokens):
                continue
            seen.add(digest)
            if budget is not None and len(encoding.ids) + 1 > budget:
                return
            if budget is not None:
                budget -= len(encoding.ids) + 1
            yield document.id, text, digest, encoding.ids


def _batches(source: Source) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in source:
        batch.append(document)
        size += len(document.text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _choose_splits(digests: list[str], lengths: list[int], min_heldout_tokens: int) -> list[str]:
    """The split of every document: held-out ones are the first, in the order of their hashes, among the long."""
    long = sorted(
        (digest, row) for row, (digest, n) in enumerate(zip(digests, lengths, strict=True)) if n >= min_heldout_tokens
    )
    if len(long) < 2 or len(lengths) < 3:
        raise UserError(
            f"{len(long)} of {len(lengths)} documents have at least {min_heldout_tokens} tokens (the longest has "
            f"{max(lengths)}), and testing and validation need one each, training a third; "
            "lower `min_heldout_tokens` or add documents"
        )
    chosen = ["train"] * len(lengths)
    taken = 0
    for name, (share, most) in HELDOUT.items():
        count = max(1, min(most, round(share * len(long))))
        for _, row in long[taken : taken + count]:
            chosen[row] = name
        taken += count
    return chosen


def _write_split(
    folder: Path, name: str, batches: Iterable[pa.RecordBatch], chosen: list[str], schema: pa.Schema
) -> dict[str, Any]:
    row = documents = size = longest = 0
    with _Shards(folder, name, schema) as written:
        for batch in batches:
            mine = pa.array([split == name for split in chosen[row : row + batch.num_rows]])
            row += batch.num_rows
            kept = batch.filter(mine)
            if kept.num_rows:
                counts = np.diff(kept.column("tokens").offsets.to_numpy())
                documents, size = documents + kept.num_rows, size + sum(kept.column("bytes").to_pylist())
                longest = max(longest, int(counts.max()) - 1)
                written.write(kept)
    return {
        "shards": [path.name for path in written.paths],
        "documents": documents,
        "tokens": written.tokens,
        "bytes": size,
        "longest_document": longest,
    }


def _kept(path: Path) -> dict[str, Any]:
    """What a file holds, once it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": shards.sha256(path)}


class _Shards:
    """Writes record batches into Arrow files of at most about SHARD_TOKENS tokens."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self.folder, self.name, self.schema = folder, name, schema
        self.paths: list[Path] = []
        self.tokens = 0
        self._in_shard = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._rows: list[tuple[str, int, list[int]]] = []
        self._pending = 0

    def __enter__(self) -> "_Shards":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def add(self, document_id: str, size: int, tokens: list[int]) -> None:
        """One document; rows gather into record batches."""
        self._rows.append((document_id, size, tokens))
        self._pending += len(tokens)
        if self._pending >= BATCH_CHARACTERS // 4:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*self._rows, strict=True), self.schema, strict=True)
            ]
            self.write(pa.RecordBatch.from_arrays(columns, schema=self.schema))
            self._rows, self._pending = [], 0

    def write(self, batch: pa.RecordBatch) -> None:
        """One record batch."""
        offsets = batch.column("tokens").offsets
        tokens = offsets[-1].as_py() - offsets[0].as_py()
        if self._writer is not None and self._in_shard + tokens > SHARD_TOKENS:
            self._writer.close()
            self._writer = None
        if self._writer is None:
            path = self.folder / f"{self.name}-{len(self.paths):05d}.arrow"
            self.paths.append(path)
            self._writer = pa.ipc.new_file(str(path), self.schema)
            self._in_shard = 0
        self._writer.write_batch(batch)
        self._in_shard += tokens
        self.tokens += tokens
