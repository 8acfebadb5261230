"""Protocols: which tokens are scored, each with which context. Index arithmetic, no model.

In a window that starts at token s of a document, inputs x[s .. s+N-1] predict x[s+1 .. s+N]. Windows never cross
a document, and there is no beginning-of-text token.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from extrapolate.errors import UserError


@dataclass(frozen=True)
class Windows:
    """W windows of `length` inputs; in each, the last `scored` targets count.

    document_W and start_W, int64, are the document and the first input's place in it.
    """

    document_W: np.ndarray
    start_W: np.ndarray
    length: int
    scored: int

    def targets(self) -> np.ndarray:
        """The (document, place in the document) of every target, int64 [W, scored, 2]."""
        last_W = self.start_W + self.length
        place_WS = last_W[:, None] + np.arange(1 - self.scored, 1)
        return np.stack([np.broadcast_to(self.document_W[:, None], place_WS.shape), place_WS], axis=-1)


@dataclass(frozen=True)
class Layout:
    """One protocol on one split: the windows of every evaluation length, and the control's.

    Every entry scores the same targets.
    """

    rows: Mapping[int, tuple[Windows, ...]]
    control: tuple[Windows, ...]


def lengths_of(factors: Sequence[float], seq_len: int) -> list[int]:
    """Evaluation lengths in tokens, N = factor L, in ascending order.

    Raises UserError on factors that are not positive or do not give whole lengths.
    """
    lengths = []
    for factor in factors:
        if not (math.isfinite(factor) and factor > 0):
            raise UserError(f"factors must be positive, not {factor:g}")
        length = Fraction(str(factor)) * seq_len
        if length.denominator != 1:
            raise UserError(
                f"factor {factor:g} of a training length of {seq_len} is {float(length):g}, not a whole length"
            )
        lengths.append(int(length))
    if not lengths:
        raise UserError("name at least one factor")
    return sorted(set(lengths))


def windows(document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
    """The ExPE paper's protocol (arXiv 2509.19569): spans cut into disjoint windows, every token scored.

    Documents are cut into spans that every evaluation length divides (of the longest, when each is a multiple of
    the one before), so that the same tokens are scored at every length. The control's windows have L inputs and
    move on by L/2, only new targets scored: every target has at least L/2 tokens of context, but those at the
    start of a span. At most max_targets targets, spread evenly over documents.
    Raises UserError where no document, or max_targets, holds a span.
    """
    span = math.lcm(seq_len, *lengths)
    document_W, start_W = _spans(document_lengths, span, max_targets)
    rows = {length: (_tiled(document_W, start_W, span, length),) for length in lengths}
    return Layout(rows, _strided(document_W, start_W, span, seq_len, max(1, seq_len // 2)))


def sliding(document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
    """Windows of N tokens that move on by L/2, only new targets scored.

    All targets but those of a span's first window have at least N - L/2 tokens of context.
    The spans, the targets and the control are those of `windows`; at 1x a row is its own control. At most max_targets
    targets, spread evenly over documents. Raises UserError where no document, or max_targets, holds a span.
    """
    span = math.lcm(seq_len, *lengths)
    document_W, start_W = _spans(document_lengths, span, max_targets)
    rows = {length: _strided(document_W, start_W, span, length, max(1, seq_len // 2)) for length in lengths}
    return Layout(rows, rows.get(seq_len) or _strided(document_W, start_W, span, seq_len, max(1, seq_len // 2)))


def _spans(document_lengths: np.ndarray, span: int, max_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """Documents and starts of disjoint spans. Raises UserError where no document, or max_targets, holds one."""
    if max_targets < span:
        raise UserError(f"--max-targets {max_targets} holds no span of {span} tokens")
    available_D = np.maximum(document_lengths - 1, 0) // span
    _check_reached(available_D, document_lengths, span, "a span of")
    document_W, place_W = _spread(available_D, max_targets // span)
    return document_W, place_W * span


def _tiled(document_W: np.ndarray, start_W: np.ndarray, span: int, length: int) -> Windows:
    inner = np.arange(0, span, length)
    starts = (start_W[:, None] + inner).ravel()
    return Windows(np.repeat(document_W, len(inner)), starts, length, length)


def _strided(document_W: np.ndarray, start_W: np.ndarray, span: int, length: int, stride: int) -> tuple[Windows, ...]:
    """Windows that cover spans by moving on by `stride`: the first scores all of itself, the next what is new."""
    groups = [Windows(document_W, start_W, length, length)]
    ends = [*range(length + stride, span + 1, stride)]
    if ends:
        starts = (start_W[:, None] + (np.array(ends) - length)).ravel()
        groups.append(Windows(np.repeat(document_W, len(ends)), starts, length, stride))
    covered = ends[-1] if ends else length
    if covered < span:
        groups.append(Windows(document_W, start_W + span - length, length, span - covered))
    return tuple(groups)


def fixed_target(document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
    """The same targets at every length: blocks of L/2 tokens at the end of their windows, only the context grows.

    The control is the plain 1x row: every target has between L/2 and L tokens of context. At most max_targets
    targets, spread evenly over documents. Where a document has the room, its blocks lie as far apart as the two longest
    lengths differ: the window of the second longest is then the beginning of the next block's longest, and need not be
    computed. Raises UserError where no document reaches the longest window, a length is below L/2, or max_targets
    holds no block.
    """
    block = max(1, seq_len // 2)
    longest = max(*lengths, seq_len)
    if min(lengths) < block:
        raise UserError(
            f"fixed-target scores blocks of {block} tokens: an evaluation length of {min(lengths)} is too short"
        )
    if max_targets < block:
        raise UserError(f"--max-targets {max_targets} holds no block of {block} targets")
    available_D = np.where(document_lengths - 1 >= longest, (document_lengths - 1 - longest) // block + 1, 0)
    _check_reached(available_D, document_lengths, longest, "a window of")
    second = max((length for length in {seq_len, *lengths} if length < longest), default=0)
    document_W, place_W = _spread(available_D, max_targets // block, -(-(longest - second) // block))
    end_W = longest + place_W * block
    rows = {length: (Windows(document_W, end_W - length, length, block),) for length in lengths}
    control = rows.get(seq_len) or (Windows(document_W, end_W - seq_len, seq_len, block),)
    return Layout(rows, control)


Protocol = Callable[[np.ndarray, int, Sequence[int], int], Layout]
PROTOCOLS: dict[str, Protocol] = {"windows": windows, "fixed-target": fixed_target, "sliding": sliding}
# Windows of the other two score far fewer of their tokens than those of `windows`, so they cost more a target.
DEFAULT_MAX_TARGETS = {"windows": 131_072, "fixed-target": 8_192, "sliding": 8_192}


def targets_hash(groups: Sequence[Windows], corpus_hash: str, split: str) -> str:
    """Identifies a set of targets: only rows with equal hashes are compared."""
    flat = np.concatenate([group.targets().reshape(-1, 2) for group in groups])
    ordered = flat[np.lexsort((flat[:, 1], flat[:, 0]))]
    return hashlib.sha256(f"{corpus_hash} {split}\n".encode() + ordered.astype("<i8").tobytes()).hexdigest()[:16]


def _check_reached(available_D: np.ndarray, document_lengths: np.ndarray, needed: int, what: str) -> None:
    if not available_D.any():
        raise UserError(
            f"no held-out document holds {what} {needed} tokens and its next: the longest has "
            f"{int(document_lengths.max(initial=0))}; use smaller --factors, or tokenise longer documents with "
            f"--min-heldout-tokens {needed + 1}"
        )


def _spread(available_D: np.ndarray, most: int, apart: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Chooses at most `most` of the places that documents have: as even over documents as can be.

    Within one document they lie evenly too, or just so far `apart`, in its middle, where there is room for that.
    Returns documents and places, in order.
    """
    low, high = 0, int(available_D.max())
    while low < high:  # the largest allowance per document that stays within `most`
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(available_D, middle).sum() <= most else (low, middle - 1)
    chosen_D = np.minimum(available_D, low)
    for document in np.flatnonzero(available_D > low)[: most - int(chosen_D.sum())]:
        chosen_D[document] += 1
    documents = np.repeat(np.arange(len(chosen_D)), chosen_D)
    places = [_within(int(n), int(m), apart) for n, m in zip(chosen_D, available_D, strict=True) if n]
    return documents.astype(np.int64), np.concatenate(places).astype(np.int64)


def _within(chosen: int, available: int, apart: int | None) -> np.ndarray:
    room = available - 1 - (chosen - 1) * apart if apart is not None else -1
    return (
        np.arange(chosen) * available // chosen if room < 0 or apart is None else room // 2 + np.arange(chosen) * apart
    )
