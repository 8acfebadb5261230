"""Which documents are held out, and which the tokenizer learns from: none that may be held out."""

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

# So many times the documents that can be held out are kept back: near-duplicates of others may go to training.
RESERVE = 2


class Long(NamedTuple):
    """A document that is long enough to be held out. `row` is its place among all, `tokens` leaves out its end."""

    digest: bytes
    row: int
    tokens: int


class HeldOut:
    """Of the long documents, in the order of their hashes, the first are for testing, those after them for validation.

    How many follows from HELDOUT, and from how many long documents there are. The later ones of that order can already
    be let go of when they come, as nothing that comes after them brings them nearer to its beginning.

    Near-duplicates are drawn as one, at the place of the last of them in that order. So a group of which one document
    is too short, or was let go of, is for training.

    bound: only documents with lower hashes can be held out, as the tokenizer learned from the others (see `Learning`).
    """

    def __init__(self, min_tokens: int, bound: bytes | None = None) -> None:
        self._min_tokens = min_tokens
        self._first: list[Long] = []  # in the order of their hashes
        self._beyond = bound  # the least hash of those that were let go of
        self._long = self._all = self._longest = 0

    def may_hold(self, digest: bytes, tokens: int) -> bool:
        """Takes the next document. Whether it may be held out at the end; else it is for training."""
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
        """The split of every document that is held out, by its row.

        pairs: near-duplicates, by their rows; never: documents that are for training. Raises UserError if there are
        too few for testing, validation and training.
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
        """The groups that can be drawn, in the order of their last documents' hashes."""
        sizes = Counter(group_of.values())
        there: dict[int, list[Long]] = {}
        excluded = {group_of.get(row, row) for row in never}
        for document in self._first:
            group = group_of.get(document.row, document.row)
            there.setdefault(group, []).append(document)
            if len(there[group]) == sizes.get(group, 1) and group not in excluded:
                yield there[group]


def _united(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The lowest row of every document's group, for all documents in pairs; groups are what pairs connect."""
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
    """How many groups each split takes: as many as its numbers of documents and tokens allow, and at least one.

    One is left for each split after it.

    sizes: the documents and the tokens of each group.
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
