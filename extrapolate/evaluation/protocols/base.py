"""What a protocol is: which tokens are scored, each with which context. Index arithmetic, no model.

In a window that starts at token s of a document, inputs x[s .. s+N-1] predict x[s+1 .. s+N]. Windows never cross
a document, and there is no beginning-of-text token.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Literal

import numpy as np

from extrapolate import specs
from extrapolate.errors import UserError
from extrapolate.evaluation.names import LONGEST, MAX_TARGETS


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


CONTROL: Final = "control"
Key = int | Literal["control"]  # whose windows: those of an evaluation length in tokens, or the control's


@dataclass(frozen=True)
class Layout:
    """One protocol on one split: the windows of every evaluation length, and the control's.

    Every entry scores the same targets.
    """

    rows: Mapping[int, tuple[Windows, ...]]
    control: tuple[Windows, ...]

    def by_key(self) -> dict[Key, tuple[Windows, ...]]:
        """The windows of every length, and the control's under CONTROL."""
        found: dict[Key, tuple[Windows, ...]] = dict(self.rows.items())
        return found | {CONTROL: self.control}


class Protocol(ABC):
    """Lays windows over documents, and says how what it measures is shown. A docstring's first line is its description.

    max_targets: the most tokens it scores, unless asked otherwise; a protocol
    whose windows score few of their tokens costs more a target. paper: whether published tables are made with it; its
    tables are a report's main ones. positions: whether it scores targets all over its windows, so that a report shows
    the loss by position. benchmark_share: its targets in `bench --evaluation` for each of `windows`. drawn_tokens: the
    length of the document in its picture, which has windows of up to 32 tokens.
    """

    max_targets: ClassVar[int] = MAX_TARGETS
    paper: ClassVar[bool] = False
    positions: ClassVar[bool] = False
    benchmark_share: ClassVar[float] = 1 / 16
    drawn_tokens: ClassVar[int] = 33  # one window of the longest length, and the last target

    @staticmethod
    @abstractmethod
    def layout(document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
        """The windows over documents of so many tokens each, for a training length and evaluation lengths, in tokens.

        At most max_targets targets, spread evenly over documents. Raises UserError where documents or max_targets are
        too small for the lengths.
        """


protocols: specs.Registry[Protocol] = specs.Registry("protocol")


def of_table(name: str) -> type[Protocol]:
    """The protocol that a table names: where none is registered under that name, one of which nothing is known."""
    return protocols[name] if name in protocols.names() else Protocol


def lengths_of(factors: Sequence[float], seq_len: int) -> list[int]:
    """Evaluation lengths in tokens, N = factor L, in ascending order.

    Raises UserError on factors that are not positive or do not give whole lengths.
    """
    lengths = []
    for factor in factors:
        if not (math.isfinite(factor) and factor > 0):
            raise UserError(f"factors must be positive, not {factor:g}")
        if factor * seq_len > LONGEST:
            raise UserError(
                f"factor {factor:g} of a training length of {seq_len} makes windows of more than {LONGEST} tokens"
            )
        length = Fraction(str(factor)) * seq_len
        if length.denominator != 1:
            raise UserError(
                f"factor {factor:g} of a training length of {seq_len} is {float(length):g}, not a whole length"
            )
        lengths.append(int(length))
    if not lengths:
        raise UserError("name at least one factor")
    return sorted(set(lengths))


def targets_hash(groups: Sequence[Windows], corpus_hash: str, split: str) -> str:
    """Identifies a set of targets: only rows with equal hashes are compared."""
    flat = np.concatenate([group.targets().reshape(-1, 2) for group in groups])
    ordered = flat[np.lexsort((flat[:, 1], flat[:, 0]))]
    return hashlib.sha256(f"{corpus_hash} {split}\n".encode() + ordered.astype("<i8").tobytes()).hexdigest()[:16]
