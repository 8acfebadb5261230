"""The paper's protocol."""

import math
from collections.abc import Sequence

import numpy as np

from extrapolate.evaluation.protocols._spans import spans_of, strided, tiled
from extrapolate.evaluation.protocols.base import Layout, Protocol, protocols


@protocols.register("windows")
class DisjointWindows(Protocol):
    """Documents are cut into disjoint windows of N tokens, and every token is scored.

    The ExPE paper's protocol (arXiv 2509.19569). Documents are cut into spans that every evaluation length divides (the
    longest length, if each is a multiple of the one before), so that the same tokens are scored at every length. The
    control's windows have L inputs, move on by L/2, and score only new targets: every target has at least L/2 tokens of
    context, except those at the start of a span. It is refused if no document, or the number of targets, holds a span.
    """

    max_targets = 131_072
    paper = True
    positions = True

    def layout(self, document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
        span = math.lcm(seq_len, *lengths)
        document_W, start_W = spans_of(document_lengths, span, max_targets)
        rows = {length: (tiled(document_W, start_W, span, length),) for length in lengths}
        return Layout(rows, strided(document_W, start_W, span, seq_len, max(1, seq_len // 2)))
