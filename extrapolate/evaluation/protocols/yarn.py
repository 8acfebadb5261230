"""The protocol of YaRN's evaluation script."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from extrapolate.evaluation.protocols._spans import Moving, check_reached, spread
from extrapolate.evaluation.protocols.base import Layout, TooFewTargetsError, Windows, protocols

USUAL_STRIDE = 256  # tokens, in the script


@protocols.register("yarn")
@dataclass(frozen=True, kw_only=True)
class Yarn(Moving):
    """Windows move along whole documents, as in YaRN's script: its figure is the mean of the windows' means.

    The script is eval/perplexity.py of github.com/jquesnelle/yarn (arXiv 2309.00071). A window has N tokens including
    the last target, so N - 1 inputs; at the end of a document it has fewer. By default, windows move on by 256 tokens
    or L/2, whichever is less, and only new targets are scored. `window_perplexity` is the script's figure; `loss`
    weights every token equally. The script puts a token before every window if the tokenizer has one for that: use
    `bos`. Documents are read whole if the number of targets allows it, otherwise equally far from their beginnings. The
    control's windows of L move on by the stride, but at most by L/2. It is refused if no document, or the number of
    targets, holds a window of the longest length, or if the stride is not below all lengths.
    """

    max_targets = 32_768
    by_window = True

    @staticmethod
    def usual_stride(seq_len: int) -> int:
        return min(USUAL_STRIDE, max(1, seq_len // 2))

    def layout(self, document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
        self.check_stride(seq_len, lengths, min(lengths) - 1)
        read_D = self._read(document_lengths, max(*lengths, seq_len), max_targets)
        return self.laid(seq_len, lengths, partial(self._windows, read_D))

    def _read(self, document_lengths: np.ndarray, longest: int, max_targets: int) -> np.ndarray:
        """How many targets of each document are scored, from its beginning on, int64 [D]."""
        needed = longest - 1
        if max_targets < needed:
            raise TooFewTargetsError(max_targets, f"window of {longest} tokens", needed)
        available_D = document_lengths - 1 + self.bos  # without a token before it the first token has no prediction
        available_D = np.where(available_D >= needed, available_D, 0)
        check_reached(available_D, document_lengths, needed, "a window of")
        reached = np.flatnonzero(available_D)
        count = min(len(reached), max_targets // needed)
        kept = reached[np.arange(count) * len(reached) // count]
        only_D = np.zeros_like(available_D)
        only_D[kept] = available_D[kept]
        return np.bincount(spread(only_D, max_targets)[0], minlength=len(only_D))

    def _windows(self, read_D: np.ndarray, length: int, stride: int) -> tuple[Windows, ...]:
        """Windows over the first `read_D` targets of documents; those of one shape in one group."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for document in np.flatnonzero(read_D).tolist():
            start, done, targets = 0, 0, int(read_D[document])
            while done < targets:
                inputs = min(length - 1, targets - start)
                found[inputs, start + inputs - done].append((document, start - self.bos))
                done, start = start + inputs, start + stride
        groups = []
        for (inputs, scored), places in found.items():
            document_W, start_W = np.array(places, np.int64).T
            groups.append(Windows(document_W, start_W, inputs, scored))
        return tuple(groups)
