"""Choosing the documents that are held out, and those that the tokenizer is trained on, which never are."""

import hashlib
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from extrapolate.data.documents import Document
from extrapolate.data.manifest import SPLITS
from extrapolate.data.store import HELDOUT
from extrapolate.errors import UserError

# How many times the documents needed are kept as candidates, as near-duplicates may have to go to training.
RESERVE = 2


class Long(NamedTuple):
    """A document long enough to be held out. row: its index among all; tokens: without the end-of-text token."""

    digest: bytes
    row: int
    tokens: int


class HeldOut:
    """Of the long documents, ordered by hash, the first are for testing and the next for validation.

    HELDOUT and the number of long documents decide how many. Those late in the order can be released at once, because
    later documents only push them further back.

    Near-duplicates are drawn as one, at the place of the last of them in the order. A group goes to training if one of
    its documents is too short or was released.

    bound: only documents with lower hashes can be held out; the tokenizer learned from the others (see `Learning`).
    """

    def __init__(self, min_tokens: int, bound: bytes | None = None) -> None:
        self._min_tokens = min_tokens
        self._first: list[Long] = []  # in the order of their hashes
        self._beyond = bound  # the lowest hash that was released
        self._long = self._all = self._longest = 0

    def may_hold(self, digest: bytes, tokens: int) -> bool:
        """Adds the next document. Returns whether it may be held out in the end; if not, it is for training."""
        self._all, self._longest = self._all + 1, max(self._longest, tokens)
        if tokens < self._min_tokens:
            return False
        self._long += 1
        if self._beyond is not None and digest >= self._beyond:
            return False
        insort(self._first, Long(digest, self._all - 1, tokens))
        most = {name: RESERVE * most for name, (_, most, _) in HELDOUT.items()}
        reach = sum(_counts([(1, document.tokens) for document in self._first], most, RESERVE).values())
        if reach < len(self._first):
            self._beyond = self._first[reach].digest
            del self._first[reach:]
        return self._beyond is None or digest < self._beyond

    @property
    def rows(self) -> list[int]:
        """The documents that may be held out."""
        return [document.row for document in self._first]

    def chosen(self, pairs: Iterable[tuple[int, int]] = (), never: Collection[int] = ()) -> dict[int, str]:
        """The split of every held-out document, by its row.

        pairs: near-duplicates, by row; never: documents that are for training. Raises UserError if there are too few
        documents for testing, validation and training.
        """
        if self._long < 2 or self._all < 3:
            raise UserError(
                f"{self._long} of {self._all} documents have at least {self._min_tokens} tokens (the longest has "
                f"{self._longest}), and testing and validation need one each, training a third; "
                "lower `min_heldout_tokens` or add documents"
            )
        if len(self._first) < len(HELDOUT):
            raise UserError(
                f"the tokenizer learned from all but {len(self._first)} of the {self._long} documents of at least "
                f"{self._min_tokens} tokens, and testing and validation need one each that it did not learn from; "
                "lower `min_heldout_tokens`, add documents, or give a `tokenizer`"
            )
        groups = list(self._groups(_united(pairs), set(never)))
        wanted = {name: min(most, round(share * self._long)) for name, (share, most, _) in HELDOUT.items()}
        sizes = [(len(group), sum(document.tokens for document in group)) for group in groups]
        first = iter(groups)
        chosen = {
            document.row: name
            for name, count in _counts(sizes, wanted).items()
            for group in islice(first, count)
            for document in group
        }
        if len(set(chosen.values())) < len(HELDOUT) or len(chosen) == self._all:
            raise UserError(
                f"too many of the {self._all} documents are near-duplicates, which go into one split together: none is "
                "left for testing, validation or training; add documents, or give `dedup=False`"
            )
        return chosen

    def _groups(self, group_of: dict[int, int], never: set[int]) -> Iterator[list[Long]]:
        """The groups that can be drawn, ordered by the hash of their last document."""
        sizes = Counter(group_of.values())
        there: dict[int, list[Long]] = {}
        excluded = {group_of.get(row, row) for row in never}
        for document in self._first:
            group = group_of.get(document.row, document.row)
            there.setdefault(group, []).append(document)
            if len(there[group]) == sizes.get(group, 1) and group not in excluded:
                yield there[group]


def _united(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The lowest row of each document's group, for all documents in pairs. A group is connected by pairs."""
    lowest: dict[int, int] = {}

    def find(row: int) -> int:
        lowest.setdefault(row, row)
        while lowest[row] != row:
            lowest[row] = row = lowest[lowest[row]]
        return row

    for pair in pairs:
        low, high = sorted(map(find, pair))
        lowest[high] = low
    return {row: find(row) for row in list(lowest)}


def _counts(sizes: Sequence[tuple[int, int]], wanted: dict[str, int], reserve: int = 1) -> dict[str, int]:
    """How many groups each split takes: as many as its limits of documents and tokens allow, and at least one.

    One is left for each later split. sizes: the documents and tokens of each group.
    """
    counts = {}
    taken = 0
    for later, (name, (_, _, most_tokens)) in zip(reversed(range(len(HELDOUT))), HELDOUT.items(), strict=True):
        count = documents = tokens = 0
        for some, many in islice(sizes, taken, max(taken, len(sizes) - later)):
            documents, tokens = documents + some, tokens + many
            if count and (documents > wanted[name] or tokens > reserve * most_tokens):
                break
            count += 1
        counts[name], taken = count, taken + count
    return counts


_PREFIX = 8  # bytes of a hash, which tell documents apart


@dataclass(frozen=True)
class Learning:
    """The documents to train the tokenizer on: the first `documents` of a source, without those that may be held out.

    Without a tokenizer, numbers of tokens are unknown. But a token of a byte-level BPE has at least one byte, so a
    document that can be held out has at least `min_bytes` bytes. Half of these, with hashes below `bound`, are left
    out; held-out documents are drawn from this half.

    Documents that the source's own column `split` holds out are left out too (`heldout`: the beginnings of their
    hashes). If the column names the split of every document, none has to be drawn.
    """

    documents: int
    min_bytes: int
    bound: bytes
    heldout: frozenset[bytes]

    @classmethod
    def of(
        cls, source: Iterable[Document], min_bytes: int, characters: int, progress: Callable[[int], None]
    ) -> "Learning":
        """Reads about `characters` characters of a source. `progress` is called with the bytes of each document."""
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
            elif content:
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
        """The texts to train on. `progress` is called with the bytes of each document, whether used or not."""
        for _, document in zip(range(self.documents), source, strict=False):
            content = document.text.encode()
            progress(len(content))
            digest = hashlib.sha256(content).digest()
            if digest[:_PREFIX] not in self.heldout and (len(content) < self.min_bytes or digest >= self.bound):
                yield document.text
