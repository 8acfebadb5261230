"""Windows that move along a text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from extrapolate.evaluation.protocols._spans import Moving, spans_of, strided
from extrapolate.evaluation.protocols.base import Layout, protocols


@protocols.register("sliding")
@dataclass(frozen=True, kw_only=True)
class Sliding(Moving):
    """Windows of N tokens move on by a stride, and only new targets are scored, as a deployed model reads.

    The stride is L/2 by default. All targets except those of a span's first window have at least N - stride tokens of
    context. The spans and the targets are those of `windows`. The control's windows of L move on by the stride, but at
    most by L/2; at 1x, a row is therefore its own control unless the stride is above L/2. It is refused if no document,
    or the number of targets, holds a span, or if a length is below the stride.
    """

    @staticmethod
    def usual_stride(seq_len: int) -> int:
        return max(1, seq_len // 2)

    def layout(self, document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
        self.check_stride(seq_len, lengths, min(lengths))
        span = math.lcm(seq_len, *lengths)
        document_W, start_W = spans_of(document_lengths, span, max_targets)
        return self.laid(seq_len, lengths, partial(strided, document_W, start_W, span))
