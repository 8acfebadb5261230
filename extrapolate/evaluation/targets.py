"""The targets of a protocol in one order, and sums of what is known of each over groups of them.

Shapes: N targets, W windows, S scored targets of a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extrapolate.data.store import Split
from extrapolate.evaluation.protocols.base import Windows


@dataclass(frozen=True)
class Targets:
    """Every target once, by document and then by place: arrays [N].

    bytes_N are the bytes of text it stands for, NaN if that is not known.
    """

    document_N: np.ndarray
    place_N: np.ndarray
    bytes_N: np.ndarray

    @classmethod
    def of(
        cls, groups: Sequence[Windows], split: Split, token_bytes: np.ndarray | None, lossless: bool = True
    ) -> "Targets":
        """The targets of some windows; bytes are exact where every token's are known, else the documents' means.

        Of a tokenizer that is not lossless, no bytes are known.
        """
        flat = np.concatenate([group.targets().reshape(-1, 2) for group in groups])
        document_N, place_N = flat[np.lexsort((flat[:, 1], flat[:, 0]))].T
        if not lossless:
            bytes_N = np.full(len(document_N), np.nan)
        elif token_bytes is None:
            bytes_N = (split.bytes / np.maximum(split.lengths, 1))[document_N]
        else:
            bytes_N = token_bytes[_tokens_at(split, document_N, place_N)]
        return cls(document_N, place_N, bytes_N.astype(np.float64))


def in_order(groups: Sequence[Windows], values: Sequence[np.ndarray]) -> np.ndarray:
    """Values of each group's targets, each [W, S], in the order of `Targets`, [N]."""
    flat = np.concatenate([group.targets().reshape(-1, 2) for group in groups])
    return np.concatenate([part.ravel() for part in values])[np.lexsort((flat[:, 1], flat[:, 0]))]


def index_in_window(groups: Sequence[Windows]) -> np.ndarray:
    """The index of the last input before each target, [N]: one less than the tokens of context that it has."""
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
    """Sums of each of `values` over the targets that agree in all keys, each [N] whole and not negative.

    Returns them by name, beside the number of targets in `n_targets` and the keys in `key 0`, `key 1`, ...
    """
    code_N = np.zeros(len(keys[0]), np.int64)
    for key_N in keys:
        code_N = code_N * (int(key_N.max(initial=0)) + 1) + key_N
    _, first, group_N = np.unique(code_N, return_index=True, return_inverse=True)
    found = {name: np.bincount(group_N, value_N) for name, value_N in values.items()}
    found["n_targets"] = np.bincount(group_N)
    return found | {f"key {i}": key_N[first] for i, key_N in enumerate(keys)}


def _tokens_at(split: Split, document_N: np.ndarray, place_N: np.ndarray) -> np.ndarray:
    tokens_N = np.empty(len(place_N), np.int64)
    for document in np.unique(document_N):
        mine = document_N == document
        tokens = split.slice(int(split.offsets[document]), int(split.offsets[document + 1]))
        tokens_N[mine] = tokens[place_N[mine]]
    return tokens_N
