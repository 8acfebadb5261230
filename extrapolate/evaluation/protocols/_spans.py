"""Lays spans, blocks and windows along documents.

Shapes: D documents, W windows or spans.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from extrapolate import specs
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import Layout, Protocol, TooFewTargetsError, Windows


def spans_of(document_lengths: np.ndarray, span: int, max_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """The documents and starts of disjoint spans.

    Raises UserError if no document holds one, TooFewTargetsError if max_targets does not.
    """
    if max_targets < span:
        raise TooFewTargetsError(max_targets, f"span of {span} tokens", span)
    available_D = np.maximum(document_lengths - 1, 0) // span
    check_reached(available_D, document_lengths, span, "a span of")
    document_W, place_W = spread(available_D, max_targets // span)
    return document_W, place_W * span


def tiled(document_W: np.ndarray, start_W: np.ndarray, span: int, length: int) -> Windows:
    """Cuts spans into disjoint windows, and scores every target."""
    inner = np.arange(0, span, length)
    starts = (start_W[:, None] + inner).ravel()
    return Windows(np.repeat(document_W, len(inner)), starts, length, length)


def strided(document_W: np.ndarray, start_W: np.ndarray, span: int, length: int, stride: int) -> tuple[Windows, ...]:
    """Windows that move over spans by `stride`: the first one scores all its targets, later ones only new targets."""
    groups = [Windows(document_W, start_W, length, length)]
    ends = [*range(length + stride, span + 1, stride)]
    if ends:
        starts = (start_W[:, None] + (np.array(ends) - length)).ravel()
        groups.append(Windows(np.repeat(document_W, len(ends)), starts, length, stride))
    covered = ends[-1] if ends else length
    if covered < span:
        groups.append(Windows(document_W, start_W + span - length, length, span - covered))
    return tuple(groups)


def check_reached(available_D: np.ndarray, document_lengths: np.ndarray, needed: int, what: str) -> None:
    """Raises UserError if no document is long enough."""
    if not available_D.any():
        raise UserError(
            f"no held-out document holds {what} {needed} tokens and its next: the longest has "
            f"{int(document_lengths.max(initial=0))}; use smaller `factors`, or tokenise longer documents with "
            f"`min_heldout_tokens={needed + 1}`"
        )


def spread(available_D: np.ndarray, most: int, apart: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Chooses at most `most` of the documents' places, as evenly over documents as possible.

    Within a document they are spread evenly too or, if there is room, placed in its middle at a distance of `apart`.
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
    if apart is not None and (room := available - 1 - (chosen - 1) * apart) >= 0:
        return room // 2 + np.arange(chosen) * apart
    return np.arange(chosen) * available // chosen


@dataclass(frozen=True, kw_only=True)
class Moving(Protocol):
    """Windows that move on by `stride` tokens (default: the protocol's own choice for the training length)."""

    stride: int | None = None

    def __post_init__(self) -> None:
        if self.stride is not None and self.stride < 1:
            raise UserError(f"`stride` must be at least 1, not {specs.truncate(self.stride)}")

    def stride_at(self, seq_len: int) -> int:
        return self.stride or self.usual_stride(seq_len)

    @staticmethod
    @abstractmethod
    def usual_stride(seq_len: int) -> int:
        """The default stride, tokens."""

    def check_stride(self, seq_len: int, lengths: Sequence[int], most: int) -> None:
        """Raises UserError if windows would skip tokens: the shortest can move on by `most`."""
        stride, shortest = self.stride_at(seq_len), min(lengths)
        if most < 1:
            raise UserError(f"{self.name} needs windows of more than {shortest} tokens: use longer `factors`")
        if stride > most:
            raise UserError(
                f"{self.name} moves its windows on by {stride} tokens: an evaluation length of {shortest} is too "
                f"short; use longer `factors`, or a `stride` of at most {most}"
            )

    def laid(self, seq_len: int, lengths: Sequence[int], windows: Callable[[int, int], tuple[Windows, ...]]) -> Layout:
        """The layout with `windows(length, stride)` for every length.

        The control moves on by at most L/2, so that nearly every target has more than L/2 tokens of context. At 1x, a
        row is its own control if their strides are equal.
        """
        stride = self.stride_at(seq_len)
        back = min(stride, max(1, seq_len // 2))
        rows = {length: windows(length, stride) for length in lengths}
        same = rows.get(seq_len) if back == stride else None
        return Layout(rows, same or windows(seq_len, back))
