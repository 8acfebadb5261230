"""What a measurement is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate import specs
from extrapolate.inspection.subject import Inspected, is_decoder

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
        """The standard error of the mean, by the spread over windows; None where there is one number."""
        count = len(self.value_W)
        return None if count < 2 else float(np.std(self.value_W, ddof=1)) / math.sqrt(count)


class Measurement(ABC):
    """One way to ask how a model uses position. A docstring's first line says what it measures.

    quantities: each with its unit and its meaning, for the docs. at: what the column `at` counts.
    source: the paper that it is from, or whose it is.
    """

    quantities: ClassVar[Mapping[str, tuple[str, str]]]
    at: ClassVar[str] = ""
    source: ClassVar[str] = "our reading"

    @staticmethod
    def refusal(inspected: Inspected) -> str | None:
        """Why the model cannot be measured so; None where it can."""
        return None if is_decoder(inspected.model) else NOT_OURS

    @staticmethod
    @abstractmethod
    def inputs(seq_len: int, length: int, windows: int) -> float:
        """About how many inputs are computed, for progress."""

    @staticmethod
    @abstractmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        """The values at one length."""


measurements: specs.Registry[Measurement] = specs.Registry("measurement")


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [2**n for n in range(most.bit_length()) if 2**n <= most]
