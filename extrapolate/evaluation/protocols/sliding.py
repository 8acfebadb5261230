"""Windows that move along a text."""

import math
from collections.abc import Sequence

import numpy as np

from extrapolate.evaluation.protocols._spans import spans_of, strided
from extrapolate.evaluation.protocols.base import Layout, Protocol, protocols


@protocols.register("sliding")
class Sliding(Protocol):
    """Windows of N tokens move on by L/2, and only what is new is scored, as a deployed model reads.

    All targets but those of a span's first window have at least N - L/2 tokens of context. The spans, the targets and
    the control are those of `windows`; at 1x a row is its own control. It is refused where no document, or the
    number of targets, holds a span.
    """

    @staticmethod
    def layout(document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
        span = math.lcm(seq_len, *lengths)
        document_W, start_W = spans_of(document_lengths, span, max_targets)
        rows = {length: strided(document_W, start_W, span, length, max(1, seq_len // 2)) for length in lengths}
        return Layout(rows, rows.get(seq_len) or strided(document_W, start_W, span, seq_len, max(1, seq_len // 2)))
