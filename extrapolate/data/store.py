"""The token store: tokenised documents in Arrow files, read memory-mapped and without copies.

A store is a folder of `train-*.arrow`, `validation-*.arrow` and `test-*.arrow` (one row per document: id, bytes,
tokens, each document ending in its end-of-text token), `tokenizer.json`, and `manifest.json` with the hashes of all
files and of itself. A file is checked when it is first read.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from extrapolate.data import manifest as manifests
from extrapolate.data import shards
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.manifest import SPLITS, TOKENIZER
from extrapolate.errors import UserError
from extrapolate.machine.limits import cores

# For testing and for validation: the share of the long documents, and the most documents and tokens.
HELDOUT = {"test": (0.25, 256, 8_000_000), "validation": (0.05, 64, 2_000_000)}

_NONE = np.zeros(0, np.int64)


class Split:
    """The documents of one split, as one stream of tokens and as single documents.

    `ids` and `bytes` have one entry per document; `offsets`, int64 [D + 1], are the documents' bounds in the stream.
    """

    def __init__(self, name: str, batches: Iterable[pa.RecordBatch], late: Sequence[int] = ()) -> None:
        """late: where the last documents of the batches belong among the others."""
        self.name = name
        self._ids: list[pa.Array] = []
        sizes, counts, written = [_NONE], [_NONE], list[np.ndarray]()
        for batch in batches:
            tokens = batch.column("tokens")
            bounds = tokens.offsets.to_numpy()
            written.append(tokens.values.to_numpy()[bounds[0] : bounds[-1]])
            counts.append(np.diff(bounds))
            sizes.append(batch.column("bytes").to_numpy())
            self._ids.append(batch.column("id"))
        count_D = np.concatenate(counts)
        self._order_D = _in_order(len(count_D), late)
        self.bytes = np.concatenate(sizes)[self._order_D]
        self.offsets = np.concatenate([[0], np.cumsum(count_D[self._order_D])]).astype(np.int64)
        self._pieces = list(_runs(written, count_D, self._order_D))
        self._starts = np.concatenate([[0], np.cumsum([len(piece) for piece in self._pieces])]).astype(np.int64)

    @functools.cached_property
    def ids(self) -> list[str]:
        """Where each document came from."""
        ids = [one for column in self._ids for one in column.to_pylist()]
        return [ids[written] for written in self._order_D]

    @property
    def n_tokens(self) -> int:
        """Tokens of the stream, end-of-text tokens included."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per document, its end-of-text token not counted, int64."""
        return np.diff(self.offsets) - 1

    def slice(self, start: int, end: int) -> np.ndarray:
        """Tokens start..end-1 of the stream: a view if they lie in one piece."""
        if start >= end:
            return np.zeros(0, np.uint16)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts = []
        while start < end:
            stop = min(end, int(self._starts[first + 1]))
            parts.append(self._pieces[first][start - self._starts[first] : stop - self._starts[first]])
            start, first = stop, first + 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _in_order(documents: int, late: Sequence[int]) -> np.ndarray:
    """The index of the written document at each place, int64 [D]. The last written ones are at the places `late`."""
    is_late_D = np.zeros(documents, bool)
    is_late_D[np.array(late, np.int64)] = True
    order_D = np.empty(documents, np.int64)
    order_D[~is_late_D] = np.arange(documents - len(late))
    order_D[is_late_D] = np.arange(documents - len(late), documents)
    return order_D


def _runs(pieces: list[np.ndarray], count_D: np.ndarray, order_D: np.ndarray) -> Iterator[np.ndarray]:
    """The documents' tokens in this order, as views of the pieces, each over documents that are adjacent in one."""
    start_D = np.concatenate([[0], np.cumsum(count_D)])
    piece_starts = np.cumsum([0, *map(len, pieces)])
    piece_D = np.searchsorted(piece_starts, start_D[:-1], side="right") - 1
    breaks = (np.diff(order_D) != 1) | (np.diff(piece_D[order_D]) != 0)
    firsts, lasts = np.flatnonzero(np.append(True, breaks)), np.flatnonzero(np.append(breaks, True))
    for first, last in zip(order_D[firsts[: len(order_D)]], order_D[lasts[: len(order_D)]], strict=True):
        offset = piece_starts[piece_D[first]]
        yield pieces[piece_D[first]][start_D[first] - offset : start_D[last + 1] - offset]


@dataclass(frozen=True)
class Store:
    """An opened token store."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Raises UserError if the folder is not a store, or is damaged."""
        if not (path / "manifest.json").is_file():
            raise UserError(f"{path} is not a token store; make one with: extrapolate tokenize SOURCE --out {path}")
        return cls(path, manifests.read(path / "manifest.json"))

    @property
    def corpus_hash(self) -> str:
        """Identifies tokens, splits and tokenizer: results are comparable only if it is equal."""
        return self.manifest["corpus_hash"]

    @property
    def lossless(self) -> bool:
        """Whether decoding restores the text, so that tokens can be counted in bytes."""
        return not self.manifest["round_trip"]["changed"]

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""
        return self.manifest["vocab_size"]

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the store. Raises UserError if it is damaged."""
        self._check([TOKENIZER])
        tokenizer = tokenizers.read(self.path / TOKENIZER)
        if max(tokenizer.get_vocab().values(), default=-1) + 1 != self.vocab_size:
            raise UserError(f"{self.path / TOKENIZER} is damaged: it is of another vocabulary; {shards.AGAIN}")
        return tokenizer

    def tokenizer_json(self) -> bytes:
        """The content of the tokenizer's file. Raises UserError if it is damaged."""
        self._check([TOKENIZER])
        return (self.path / TOKENIZER).read_bytes()

    def split(self, name: str) -> Split:
        """Opens `train`, `validation` or `test`. Raises UserError on another name or damaged files of this split."""
        if name not in SPLITS:
            raise UserError(f"there is no split '{name}': choose from {', '.join(SPLITS)}")
        written = self.manifest["splits"][name]
        self._check(written["shards"])
        dtype, vocab_size, eos_id = (self.manifest[key] for key in ("dtype", "vocab_size", "eos_id"))
        batches = [
            batch for shard in written["shards"] for batch in shards.read(self.path / shard, dtype, vocab_size, eos_id)
        ]
        if sum(batch.num_rows for batch in batches) == written["documents"]:
            split = Split(name, batches, written.get("late", ()))
            found = {
                "tokens": split.n_tokens,
                "bytes": int(split.bytes.sum()),
                "longest_document": int(split.lengths.max(initial=0)),
            }
            if {**written, **found} == written:
                return split
        raise UserError(f"{self.path} is damaged: its {name} shards do not hold what its manifest says; {shards.AGAIN}")

    def _check(self, names: Sequence[str]) -> None:
        """Raises UserError if a file has changed since it was written."""
        written = self.manifest["files"]

        def check(name: str) -> None:
            shards.check_content(self.path / name, written[name]["bytes"], written[name]["sha256"])

        # Hashing releases the interpreter lock, so threads share the work.
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(check, names))
