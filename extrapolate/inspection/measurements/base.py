"""What a measurement is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.inspection.inspected import Chunk, Inspected, is_decoder

NOT_OURS = "another library runs the model: its attention cannot be observed"


@dataclass(frozen=True)
class Value:
    """A quantity, a number for each window, float64 [W]; of one layer and head, and at one place, where it has them.

    What cannot be said window by window has one number.
    """

    quantity: str
    value_W: np.ndarray
    layer: int | None = None
    head: int | None = None
    at: float | None = None

    @property
    def mean(self) -> float:
        """Over windows."""
        return float(np.mean(self.value_W, dtype=np.float64))

    @property
    def error(self) -> float | None:
        """The standard error of the mean, by the spread over windows; None if there is one number."""
        count = len(self.value_W)
        return None if count < 2 else float(np.std(self.value_W, ddof=1)) / math.sqrt(count)


class Measurement(ABC):
    """One way to ask how a model uses position. A docstring's first line says what it measures.

    quantities: each with its unit and its meaning, for the docs. at: what the column `at` counts.
    source: the paper that it is from, or whose it is. any_model: whether it also measures models of other libraries.
    """

    quantities: ClassVar[Mapping[str, tuple[str, str]]]
    at: ClassVar[str] = ""
    source: ClassVar[str] = "our reading"
    any_model: ClassVar[bool] = False

    @classmethod
    def refusal(cls, inspected: Inspected) -> str | None:
        """Why the model cannot be measured so; None if it can."""
        return None if cls.any_model or is_decoder(inspected.model) else NOT_OURS

    @staticmethod
    def inputs(seq_len: int, length: int, windows: int) -> float:
        """About how many inputs are computed, for progress: every window once, unless a measurement says otherwise."""
        return windows * length

    @staticmethod
    @abstractmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        """The values at one length."""


class OfAttention(Measurement):
    """A measurement of weights of attention. Layers that have something else in its place are left out."""

    @classmethod
    def refusal(cls, inspected: Inspected) -> str | None:
        if (reason := super().refusal(inspected)) is not None:
            return reason
        if any(encoding.attends() for encoding in inspected.setting.encodings):
            return None
        return f"no layer of {inspected.model.label()} has attention"


class Sums:
    """Sums over the queries of each window, [W, H, ...], by quantity, layer and place, as attention is observed."""

    def __init__(self, inspected: Inspected) -> None:
        self.windows, self.queries = len(inspected.tokens_WN), len(inspected.query_index)
        self._sum_WH: dict[tuple[str, int, float | None], Tensor] = {}

    def add(self, quantity: str, chunk: Chunk, sum_BH: Tensor, at: float | None = None) -> None:
        """The sums over a chunk's queries, for each window of its batch, [B, H, ...]."""
        key = (quantity, chunk.layer, at)
        if key not in self._sum_WH:
            self._sum_WH[key] = torch.zeros(self.windows, *sum_BH.shape[1:], dtype=torch.float64)
        self._sum_WH[key][chunk.rows] += sum_BH.double().cpu()

    def means(self) -> Iterator[tuple[str, int, float | None, np.ndarray]]:
        """Quantity, layer, place, and the means over queries, float64 [W, H, ...]."""
        for (quantity, layer, at), sum_WH in self._sum_WH.items():
            yield quantity, layer, at, sum_WH.numpy() / self.queries

    def values(self) -> Iterator[Value]:
        """The means of each head."""
        for quantity, layer, at, mean_WH in self.means():
            for head, mean_W in enumerate(mean_WH.T):
                yield Value(quantity, mean_W, layer, head, at)


measurements: specs.Registry[Measurement] = specs.Registry("measurement")


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [2**n for n in range(most.bit_length()) if 2**n <= most]
