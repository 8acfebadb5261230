"""Which documents the tokenizer learns from: none that may be held out."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from extrapolate.data.documents import Document
from extrapolate.data.manifest import SPLITS
from extrapolate.data.store import HELDOUT

_PREFIX = 8  # bytes of a hash, which tell documents apart


@dataclass(frozen=True)
class Learning:
    """The documents to learn from: the first `documents` of a source, without those that may be held out.

    A document's number of tokens is not known before there is a tokenizer. But a token of a byte-level BPE is at least
    one byte, so a document that can be held out has at least `min_bytes` bytes. Half of these, those whose hashes are
    below `bound`, are not learned from; held-out documents are drawn from this half.

    If the source's own column `split` names `heldout` documents (the beginnings of their hashes), they are not learned
    from either. If it names the split of all documents, none has to be drawn.
    """

    documents: int
    min_bytes: int
    bound: bytes
    heldout: frozenset[bytes]

    @classmethod
    def of(
        cls, source: Iterable[Document], min_bytes: int, characters: int, progress: Callable[[int], None]
    ) -> "Learning":
        """Reads about so many characters of a source. `progress` is called with the bytes of each document."""
        hashes, documents, shorter = array("Q"), 0, False
        heldout, named = set[bytes](), set[str | None]()
        for document in source:
            content = document.text.encode()
            progress(len(content))
            documents, characters = documents + 1, characters - len(document.text)
            named.add(document.split)
            digest = hashlib.sha256(content).digest()[:_PREFIX]
            if document.split in HELDOUT:
                heldout.add(digest)
            if len(content) >= min_bytes:
                hashes.append(int.from_bytes(digest))
            else:
                shorter = True
            if characters <= 0:
                break
        else:
            if named == set(SPLITS):
                return cls(documents, min_bytes, b"", frozenset(heldout))
        long = np.unique(np.array(hashes, np.uint64))
        kept = max(2, (len(long) + 1) // 2)  # testing and validation need one each
        if not shorter:
            kept = min(kept, len(long) - 1)  # one is left to learn from
        bound = int(long[kept]).to_bytes(_PREFIX) if 0 <= kept < len(long) else b"\xff" * _PREFIX
        return cls(documents, min_bytes, bound, frozenset(heldout))

    def texts(self, source: Iterable[Document], progress: Callable[[int], None]) -> Iterator[str]:
        """The texts to learn from. `progress` is called with the bytes of each document, learned from or not."""
        for _, document in zip(range(self.documents), source, strict=False):
            content = document.text.encode()
            progress(len(content))
            digest = hashlib.sha256(content).digest()
            if digest[:_PREFIX] not in self.heldout and (len(content) < self.min_bytes or digest >= self.bound):
                yield document.text
