"""The targets of a protocol in one order, and sums over groups of them.

Shapes: N targets, W windows, S scored targets of a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extrapolate.data.store import Split
from extrapolate.evaluation.protocols.base import Windows, targets_of


@dataclass(frozen=True)
class Targets:
    """Every target once, by document and then by place: arrays [N].

    bytes_N: the bytes of text that it stands for, NaN if unknown.
    """

    document_N: np.ndarray
    place_N: np.ndarray
    bytes_N: np.ndarray

    @classmethod
    def of(
        cls, groups: Sequence[Windows], split: Split, token_bytes: np.ndarray | None, lossless: bool = True
    ) -> "Targets":
        """The targets of some windows.

        Bytes are exact if token_bytes has those of every token, otherwise the documents' means; none are known if the
        tokenizer is not lossless.
        """
        flat, order = targets_of(groups)
        document_N, place_N = flat[order].T
        if not lossless:
            bytes_N = np.full(len(document_N), np.nan)
        elif token_bytes is None:
            bytes_N = (split.bytes / np.maximum(split.lengths, 1))[document_N]
        else:
            tokens_N = np.empty(len(place_N), np.int64)
            for document in np.unique(document_N):
                mine = document_N == document
                tokens = split.slice(int(split.offsets[document]), int(split.offsets[document + 1]))
                tokens_N[mine] = tokens[place_N[mine]]
            bytes_N = token_bytes[tokens_N]
        return cls(document_N, place_N, bytes_N.astype(np.float64))


def in_order(groups: Sequence[Windows], values: Sequence[np.ndarray]) -> np.ndarray:
    """Values of each group's targets, each [W, S], in the order of `Targets`, [N]."""
    return np.concatenate([part.ravel() for part in values])[targets_of(groups)[1]]


def index_in_window(groups: Sequence[Windows]) -> np.ndarray:
    """The index of the last input before each target, [N]: one less than its tokens of context."""
    places = [
        np.broadcast_to(np.arange(group.length - group.scored, group.length), (len(group.start_W), group.scored))
        for group in groups
    ]
    return in_order(groups, places)


def window_of(groups: Sequence[Windows]) -> np.ndarray:
    """The number of the window that scores each target, [N], counted from 0 over all groups."""
    ends = np.cumsum([len(group.start_W) for group in groups])
    numbers = [
        np.broadcast_to(np.arange(end - len(group.start_W), end)[:, None], (len(group.start_W), group.scored))
        for end, group in zip(ends, groups, strict=True)
    ]
    return in_order(groups, numbers)


def sums_by(keys: Sequence[np.ndarray], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sums each of `values` over the targets that agree in all keys, which are non-negative integers, [N].

    Returns the sums by name, the number of targets as `n_targets`, and the keys as `key 0`, `key 1`, ...
    """
    code_N = np.zeros(len(keys[0]), np.int64)
    for key_N in keys:
        code_N = code_N * (int(key_N.max(initial=0)) + 1) + key_N
    _, first, group_N = np.unique(code_N, return_index=True, return_inverse=True)
    found = {name: np.bincount(group_N, value_N) for name, value_N in values.items()}
    found["n_targets"] = np.bincount(group_N)
    return found | {f"key {i}": key_N[first] for i, key_N in enumerate(keys)}
