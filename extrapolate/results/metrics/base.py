"""Metrics: columns of EVALS that are computed from the losses of a row's targets.

Shapes: N targets, in the order of `evaluation.targets`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate import specs
from extrapolate.results.columns import REAL, Column, sometimes

ENDS = "nothing was measured at this length"


@dataclass(frozen=True)
class Scored:
    """What is known about each target of a row, [N]. Losses are in nats.

    loss_N is the model's loss, control_N the control's, and optimum_N the lowest possible, or None if unknown for the
    text. bytes_N is the number of bytes of text in a target, NaN if unknown. document_N is the index of its document,
    index_N that of its last input in the window, and window_N that of its window.
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
    """A metric, registered under the name of its column.

    `unit` may be empty; `meaning` is a sentence that describes the column. `empty` completes "empty if ..." for rows
    with a loss; without one, every metric is empty.
    """

    unit: ClassVar[str] = ""
    meaning: ClassVar[str]
    empty: ClassVar[str] = ""

    @staticmethod
    @abstractmethod
    def of(scored: Scored) -> float | None:
        """The value for a row; None if undefined."""


metrics: specs.Registry[Metric] = specs.Registry("metric")


def columns() -> tuple[Column, ...]:
    """The column of every metric."""
    found = {name: metrics[name] for name in metrics.names()}
    return tuple(
        sometimes(name, REAL, one.unit, one.meaning, f"{ENDS}, or {one.empty}" if one.empty else ENDS)
        for name, one in found.items()
    )


def values(scored: Scored | None) -> dict[str, float | None]:
    """The value of every metric, by column; all None if the model does not reach the row's length."""
    return {name: None if scored is None else metrics[name].of(scored) for name in metrics.names()}
