"""Finding documents that have much text in common, from the sketches of their passages (see `passages`).

Two documents are near-duplicates if they share a chapter, CHAPTER words, or half of the shorter and a tenth of the
longer document. Passages that occur at more than COMMON places, such as a licence, do not count.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from extrapolate.data.on_disk import Records
from extrapolate.data.passages import PASSAGE, SLOTS

CHAPTER = 1000  # words
HALF, TENTH = 0.5, 0.1  # of the words of the shorter document, and of the longer one
COMMON = 20  # places
ALIKE = SLOTS // 2  # equal slots of two sketches: the passages share about half of their shingles
_BAND = 2  # slots; two passages are compared if they share a band
_AT_ONCE = 2**13  # passages


class NearDuplicates(NamedTuple):
    """`pairs`: the lower row first; `common`: documents with at least half of their words in common passages."""

    pairs: set[tuple[int, int]]
    common: set[int]


class _Found(NamedTuple):
    """Pairs of similar passages: one of `mine`, and the number and content of one of all."""

    mine: np.ndarray
    number: np.ndarray
    passage: np.ndarray


def find(passages: Records, rows: Iterable[int]) -> NearDuplicates:
    """The near-duplicates of some documents among all, from the passages of all.

    Only the passages of those documents are in memory: the file is read once for them, and again for the others. The
    result does not depend on the order of documents.
    """
    wanted = np.array(sorted(rows), np.int64)
    of_all = passages.parts(_AT_ONCE)
    mine = np.concatenate([np.zeros(0, PASSAGE), *(some[np.isin(some["row"], wanted)] for some in of_all)])
    if not len(mine):
        return NearDuplicates(set(), set())
    sketches, sketch_of = np.unique(mine["sketch"], axis=0, return_inverse=True)
    sketch_of = sketch_of.reshape(-1)
    order = np.argsort(sketch_of, kind="stable")
    places, sketch, number, passage = _alike(passages, sketches)
    is_common = (places > COMMON)[sketch_of]
    documents, document_of = np.unique(mine["row"], return_inverse=True)
    words = np.bincount(document_of, mine["words"])
    common = documents[np.bincount(document_of, mine["words"] * is_common) >= HALF * words]
    rare = places[sketch] <= COMMON
    which, member = _joined(sketch[rare], sketch_of[order])
    found = _Found(mine[order[member]], number[rare][which], passage[rare][which])
    return NearDuplicates(_pairs(found, order[member]), set(common.tolist()))


def _alike(passages: Records, sketches: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The number of places where each sketch occurs; then for each place the sketch, the passage's number, the passage.

    If a sketch occurs at more than COMMON places, not all of them are returned.
    """
    bands = [(np.sort(keys), np.argsort(keys, kind="stable")) for keys in _bands(sketches)]
    places = np.zeros(len(sketches), np.int64)
    found, before = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, PASSAGE))], 0
    for some in passages.parts(_AT_ONCE):
        candidates = []
        for (keys, order), theirs in zip(bands, _bands(some["sketch"]), strict=True):
            which, at = _joined(theirs, keys)
            candidates.append(which * len(sketches) + order[at])
        which, sketch = np.divmod(np.unique(np.concatenate(candidates)), len(sketches))
        alike = (some["sketch"][which] == sketches[sketch]).sum(1) >= ALIKE
        which, sketch = which[alike], sketch[alike]
        places += np.bincount(sketch, minlength=len(sketches))
        rare = places[sketch] <= COMMON
        found.append((sketch[rare], before + which[rare], some[which[rare]]))
        before += len(some)
    sketch, number, passage = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return places, sketch, number, passage


def _bands(sketches: np.ndarray) -> list[np.ndarray]:
    """Each band of every sketch as one number."""
    wide = sketches.astype(np.uint64)
    return [wide[:, at] << np.uint64(32) | wide[:, at + 1] for at in range(0, SLOTS, _BAND)]


def _joined(asked: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of places of equal values in `asked` and in the sorted `keys`."""
    first = np.searchsorted(keys, asked)
    there = np.flatnonzero(keys[np.minimum(first, len(keys) - 1)] == asked)
    first = first[there]
    counts = np.searchsorted(keys, asked[there], "right") - first
    which = np.repeat(there, counts)
    return which, np.arange(len(which)) + np.repeat(first - np.cumsum(counts) + counts, counts)


def _pairs(found: _Found, member: np.ndarray) -> set[tuple[int, int]]:
    """The pairs of documents that share enough. member: the index of each passage of mine."""
    other = found.mine["row"] != found.passage["row"]
    mine, number, passage, member = found.mine[other], found.number[other], found.passage[other], member[other]
    pairs, pair = np.unique(np.stack([mine["row"], passage["row"]], 1), axis=0, return_inverse=True)
    pair = pair.reshape(-1)

    def words(numbers: np.ndarray, of: np.ndarray) -> np.ndarray:
        """For every pair, the words of one document's passages that occur in the other, each counted once."""
        _, once = np.unique(np.stack([pair, numbers], 1), axis=0, return_index=True)
        return np.bincount(pair[once], of[once], minlength=len(pairs))

    shared = np.minimum(words(member, mine["words"]), words(number, passage["words"]))
    least = np.zeros(len(pairs))
    shorter, longer = np.minimum(mine["total"], passage["total"]), np.maximum(mine["total"], passage["total"])
    least[pair] = np.minimum(CHAPTER, np.maximum(HALF * shorter, TENTH * longer))
    near = pairs[shared >= least]
    return {(int(row), int(another)) for row, another in np.sort(near, axis=1)}
