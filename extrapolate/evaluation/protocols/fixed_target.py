"""The same targets at every length, with more and more context."""

from collections.abc import Sequence

import numpy as np

from extrapolate.errors import UserError
from extrapolate.evaluation.protocols._spans import check_reached, spread
from extrapolate.evaluation.protocols.base import Layout, Protocol, TooFewTargetsError, Windows, protocols


@protocols.register("fixed-target")
class FixedTarget(Protocol):
    """Blocks of L/2 tokens are scored at the end of their windows; only the context before them grows with N.

    The control is the plain 1x row: every target has between L/2 and L tokens of context. If a document has room, its
    blocks lie as far apart as the two longest lengths differ: the window of the second longest length is then the
    beginning of the next block's longest window, and is not computed again. It is refused if no document reaches the
    longest window, a length is below L/2, or the number of targets holds no block.
    """

    drawn_tokens = 41  # room for two more blocks of L/2

    def layout(self, document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
        block = max(1, seq_len // 2)
        longest = max(*lengths, seq_len)
        if min(lengths) < block:
            raise UserError(
                f"fixed-target scores blocks of {block} tokens: an evaluation length of {min(lengths)} is too short"
            )
        if max_targets < block:
            raise TooFewTargetsError(max_targets, f"block of {block} targets", block)
        available_D = np.where(document_lengths - 1 >= longest, (document_lengths - 1 - longest) // block + 1, 0)
        check_reached(available_D, document_lengths, longest, "a window of")
        second = max((length for length in {seq_len, *lengths} if length < longest), default=0)
        document_W, place_W = spread(available_D, max_targets // block, -(-(longest - second) // block))
        end_W = longest + place_W * block
        rows = {length: (Windows(document_W, end_W - length, length, block),) for length in lengths}
        control = rows.get(seq_len) or (Windows(document_W, end_W - seq_len, seq_len, block),)
        return Layout(rows, control)
