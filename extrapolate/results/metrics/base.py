"""What a metric is: a column of `evals.parquet` that is computed from the losses of a row's targets.

Shapes: N targets, in the order of `evaluation.targets`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate import specs
from extrapolate.results.columns import REAL, Column, sometimes

ENDS = "the encoding ends before this length"


@dataclass(frozen=True)
class Scored:
    """What is known of every target of a row, [N]. Losses are in nats.

    loss_N is the model's, control_N the control's, optimum_N the least that is possible: None where the text's origin
    does not tell it. bytes_N is how many bytes of text a target stands for, NaN if that is not known. document_N is the
    number of its document, index_N the place of its last input in the window, and window_N the number of its window,
    all counted from 0.
    """

    loss_N: np.ndarray
    control_N: np.ndarray
    optimum_N: np.ndarray | None
    bytes_N: np.ndarray
    document_N: np.ndarray
    index_N: np.ndarray
    window_N: np.ndarray

    @property
    def total(self) -> float:
        """The sum of the losses, nats."""
        return float(self.loss_N.sum(dtype=np.float64))

    @property
    def mean(self) -> float:
        """The loss, nats per target."""
        return self.total / len(self.loss_N)


class Metric(ABC):
    """A metric. It is registered under the name of its column.

    `unit` is empty where there is none, `meaning` a sentence that says what the column holds. `empty` says when it
    holds nothing though there is a loss; where there is none, no metric holds anything.
    """

    unit: ClassVar[str] = ""
    meaning: ClassVar[str]
    empty: ClassVar[str] = ""

    @staticmethod
    @abstractmethod
    def of(scored: Scored) -> float | None:
        """The value of a row; None where there is none."""


metrics: specs.Registry[Metric] = specs.Registry("metric")


def columns() -> tuple[Column, ...]:
    """The column of every metric."""
    return tuple(_column(name, metrics[name]) for name in metrics.names())


def _column(name: str, metric: type[Metric]) -> Column:
    empty = f"{ENDS}, or {metric.empty}" if metric.empty else ENDS
    return sometimes(name, REAL, metric.unit, metric.meaning, empty)


def values(scored: Scored | None) -> dict[str, float | None]:
    """The value of every metric, by its column; None where the model does not reach the row's length."""
    return {name: None if scored is None else metrics[name].of(scored) for name in metrics.names()}
