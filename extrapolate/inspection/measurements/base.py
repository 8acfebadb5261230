"""The base classes of measurements."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.inspection.inspected import Chunk, Inspected
from extrapolate.model.model import Model

NOT_OURS = "another library runs the model: its attention cannot be observed"


@dataclass(frozen=True)
class Value:
    """A quantity with a number for each window, float64 [W], or one number for all windows together.

    layer, head, at: which layer, head and place it is of, if any.
    """

    quantity: str
    value_W: np.ndarray
    layer: int | None = None
    head: int | None = None
    at: float | None = None

    @property
    def mean(self) -> float:
        """The mean over windows."""
        return float(np.mean(self.value_W, dtype=np.float64))

    @property
    def error(self) -> float | None:
        """The standard error of the mean, from the spread over windows; None if there is only one number."""
        count = len(self.value_W)
        return None if count < 2 else float(np.std(self.value_W, ddof=1)) / math.sqrt(count)


class Measurement(ABC):
    """A way to measure how a model uses position. The first line of its docstring says what it measures.

    quantities: each with its unit and meaning, for the docs. at: what the column `at` counts. source: the paper that it
    is from. any_model: whether it also measures models of other libraries.
    """

    quantities: ClassVar[Mapping[str, tuple[str, str]]]
    at: ClassVar[str] = ""
    source: ClassVar[str] = "our reading"
    any_model: ClassVar[bool] = False

    @classmethod
    def refusal(cls, inspected: Inspected) -> str | None:
        """Why the model cannot be measured; None if it can."""
        return None if cls.any_model or isinstance(inspected.model, Model) else NOT_OURS

    @staticmethod
    def inputs(seq_len: int, length: int, windows: int) -> float:
        """The approximate number of inputs to compute, for progress; by default every window once."""
        return windows * length

    @staticmethod
    @abstractmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        """The values at one length."""


class OfAttention(Measurement):
    """A measurement of attention weights. Layers that have something in place of attention are left out."""

    @classmethod
    def refusal(cls, inspected: Inspected) -> str | None:
        if (reason := super().refusal(inspected)) is not None:
            return reason
        if any(encoding.attends() for encoding in inspected.setting.encodings):
            return None
        return f"no layer of {inspected.model.label()} has attention"


class Sums:
    """Accumulates sums over the queries of each window, [W, H, ...], by quantity, layer and place."""

    def __init__(self, inspected: Inspected) -> None:
        self.windows, self.queries = len(inspected.tokens_WN), len(inspected.query_index)
        self._sum_WH: dict[tuple[str, int, float | None], Tensor] = {}

    def add(self, quantity: str, chunk: Chunk, sum_BH: Tensor, at: float | None = None) -> None:
        """Adds the sums over a chunk's queries, for each window of its batch, [B, H, ...]."""
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
