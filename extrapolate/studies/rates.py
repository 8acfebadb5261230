"""The choice of a learning rate for each model of a study: the one with the least validation loss over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd

from extrapolate.folders import METRICS
from extrapolate.statistics.student_t import quantile
from extrapolate.studies.cells import Cell


@dataclass(frozen=True)
class Choice:
    """The learning rates of one model, each with its mean validation loss over seeds, nats, and the one chosen.

    A loss is None if a seed's training failed. chosen: None if no rate has a finite loss. half_widths: half of the
    mean's 95 % interval over seeds by Student's t, nats; None without an interval.
    """

    losses: Mapping[float, float | None]
    half_widths: Mapping[float, float | None]
    seeds: tuple[int, ...]
    chosen: float | None

    @property
    def edge(self) -> str | None:
        """`lowest` or `highest` if the chosen rate is at an end of the grid: a better one may lie beyond."""
        if self.chosen is None or len(self.losses) < 2:
            return None
        return {min(self.losses): "lowest", max(self.losses): "highest"}.get(self.chosen)


def choose(group: Sequence[Cell], rates: Mapping[str, float], losses: Mapping[str, float | None]) -> Choice:
    """Chooses the rate with the least mean loss. rates, losses: by cell; a loss is None if the training failed."""
    by_rate: dict[float, list[float | None]] = {}
    for cell in group:
        by_rate.setdefault(rates[cell.name], []).append(losses[cell.name])
    means = {
        rate: None if any(loss is None for loss in found) else fmean(loss for loss in found if loss is not None)
        for rate, found in by_rate.items()
    }
    whole = {rate: mean for rate, mean in means.items() if mean is not None and math.isfinite(mean)}
    chosen = min(whole, key=lambda rate: (whole[rate], rate)) if whole else None
    half_widths = {rate: _half_width(found) for rate, found in by_rate.items()}
    return Choice(means, half_widths, tuple(sorted({cell.settings.get("seed", 0) for cell in group})), chosen)


def _half_width(losses: Sequence[float | None]) -> float | None:
    whole = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if len(whole) < max(2, len(losses)):
        return None
    return quantile(0.025, len(whole) - 1) * stdev(whole) / math.sqrt(len(whole))


def validation_loss(run: Path) -> float:
    """The last validation loss of a finished run."""
    return float(pd.read_parquet(run / METRICS)["val_loss"].dropna().iloc[-1])
