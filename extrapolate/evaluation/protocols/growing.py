"""A growing text, read again with each new piece."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extrapolate import specs
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols._spans import spans_of, strided
from extrapolate.evaluation.protocols.base import Layout, Protocol, Windows, protocols


@protocols.register("growing")
@dataclass(frozen=True, kw_only=True)
class Growing(Protocol):
    """Windows grow to N tokens piece by piece, and each new piece is scored as a window of its own length reads it.

    The windows and targets are those of `windows`. Each window is read for its first S tokens, its first 2S and so on
    up to N, and the last S targets are scored each time. Extensions that depend on the length use that length, as for a
    user whose text grows; with `windows`, the plan of N applies to the first tokens too. If nothing depends on the
    length, both give the same losses at the same cost. S (step) is the greatest common divisor of L and all lengths by
    default. The control is that of `windows`. It is refused if `windows` is, or if the step does not divide every
    length. After Jet-Long's growing_window.py.
    """

    step: int | None = None
    positions = True

    def __post_init__(self) -> None:
        if self.step is not None and self.step < 1:
            raise UserError(f"growing: step must be at least 1, not {specs.truncate(self.step)}")

    def layout(self, document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
        step = self.step or math.gcd(seq_len, *lengths)
        if uneven := [length for length in lengths if length % step]:
            raise UserError(f"growing: step={step} does not divide an evaluation length of {uneven[0]} tokens")
        span = math.lcm(seq_len, *lengths)
        document_W, start_W = spans_of(document_lengths, span, max_targets)

        def grown(length: int) -> tuple[Windows, ...]:
            tiles = np.arange(0, span, length)
            documents, starts = np.repeat(document_W, len(tiles)), (start_W[:, None] + tiles).ravel()
            return tuple(Windows(documents, starts, end, step) for end in range(step, length + 1, step))

        control = strided(document_W, start_W, span, seq_len, max(1, seq_len // 2))
        return Layout({length: grown(length) for length in lengths}, control, by_own_length=True)
