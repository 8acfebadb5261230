"""Key tokens: the targets that need text more than L tokens back.

On text with a known optimum, these are the targets that the text beyond the last L tokens makes much more probable; on
other text, those whose only copy in the window is farther back. Both are decided in the windows of the longest length,
so that the set depends only on the text and its windows: it is the same for all models and lengths.

Shapes: W windows, T tokens of a window with the last target, S scored targets of a window, N targets.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from extrapolate.data.store import Split
from extrapolate.data.synthetic.base import Process
from extrapolate.evaluation.optimum import AT_ONCE, in_chunks
from extrapolate.evaluation.protocols.base import Windows
from extrapolate.evaluation.targets import in_order

AT_ONCE_CUT = 2**17  # tokens; they stay in the cache
CONTEXT = 3  # preceding tokens that a key token and its copy share
GAIN = math.log(2)  # nats: the text beyond the last L tokens at least doubles the target's probability


def copies_beyond(groups: Sequence[Windows], split: Split, seq_len: int) -> np.ndarray:
    """Whether the nearest copy of each target in its window is more than seq_len tokens back, bool [N].

    A copy is an earlier occurrence of the target with the same CONTEXT tokens before it.
    """
    return in_chunks(groups, split, lambda tokens_WT: distances(tokens_WT) > seq_len)


def distances(tokens_WT: np.ndarray) -> np.ndarray:
    """How many tokens back the nearest copy of each token in its window is, [W, T]; 0 if there is none."""
    windows, length = tokens_WT.shape
    found_WT = np.zeros((windows, length), np.int64)
    if length <= CONTEXT:
        return found_WT
    token_WT = np.unique(tokens_WT, return_inverse=True)[1].reshape(windows, length)
    count = int(token_WT.max()) + 1
    # Numbers every token with those before it, equal for equal tokens; each step makes it one token longer.
    gram_WT = token_WT
    for more in range(1, CONTEXT + 1):
        codes_WT = gram_WT[:, :-1] * count + token_WT[:, more:]
        gram_WT = np.unique(codes_WT, return_inverse=True)[1].reshape(codes_WT.shape)
    row_W = np.arange(windows)[:, None]
    code_N = (row_W * (int(gram_WT.max()) + 1) + gram_WT).ravel()
    order_N = np.argsort(code_N, kind="stable")
    again_N = code_N[order_N[1:]] == code_N[order_N[:-1]]
    back_N = np.zeros(len(code_N), np.int64)
    back_N[order_N[1:][again_N]] = (order_N[1:] - order_N[:-1])[again_N]
    found_WT[:, CONTEXT:] = back_N.reshape(gram_WT.shape)
    return found_WT


def gained_beyond(
    groups: Sequence[Windows], split: Split, seq_len: int, process: Process, optimum_N: np.ndarray
) -> np.ndarray:
    """Whether cutting each target's context to the last seq_len tokens costs GAIN or more, bool [N].

    optimum_N: the lowest possible loss with the whole windows, nats.
    """
    cut_N = in_order(groups, [_cut(process, split, group, seq_len) for group in groups])
    return cut_N - optimum_N >= GAIN  # NaN if nothing was cut


def _cut(process: Process, split: Split, group: Windows, seq_len: int) -> np.ndarray:
    """The optimum of targets with more than seq_len inputs, from the last seq_len of them, nats [W, S]; else NaN."""
    loss_WS = np.full((len(group.start_W), group.scored), np.nan)
    beyond = min(group.scored, group.length - seq_len)
    if beyond <= 0:
        return loss_WS
    rows, at_once = max(1, AT_ONCE // group.length), max(1, AT_ONCE_CUT // (seq_len + 1))
    for row in range(0, len(loss_WS), rows):
        tokens_WT = group.tokens(split, slice(row, row + rows)).astype(np.int64)
        views_WSL = sliding_window_view(tokens_WT, seq_len + 1, axis=1)[:, -beyond:]
        window_N, at_N = np.divmod(np.arange(len(tokens_WT) * beyond), beyond)
        for first in range(0, len(at_N), at_once):
            some = slice(first, first + at_once)
            cut_N = process.optimum(views_WSL[window_N[some], at_N[some]])[:, -1]
            loss_WS[row + window_N[some], group.scored - beyond + at_N[some]] = cut_N
    return loss_WS
