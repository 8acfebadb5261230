"""Which learning rate is taken for each model of a study: the one whose validation loss is least, over seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd

from extrapolate.runs.run import METRICS
from extrapolate.statistics.student_t import quantile
from extrapolate.studies.cells import Cell


@dataclass(frozen=True)
class Choice:
    """The learning rates of one model, each with its mean validation loss over seeds, nats, and the one taken.

    A loss is None if a seed's training failed. chosen is None if that holds for all. half_widths: of the mean's
    95 % interval over seeds, nats, by Student's t; None if it has no interval. edge: the chosen one is the lowest or
    the highest, so that a better one may lie beyond.
    """

    losses: Mapping[float, float | None]
    half_widths: Mapping[float, float | None]
    seeds: tuple[int, ...]
    chosen: float | None

    @property
    def edge(self) -> str | None:
        """`lowest` or `highest`, if the chosen one is at the end of the grid."""
        if self.chosen is None or len(self.losses) < 2:
            return None
        return {min(self.losses): "lowest", max(self.losses): "highest"}.get(self.chosen)

    def next_of(self, rates: Iterable[float]) -> float | None:
        """Of rates that were not tried, the one to try next: beyond the chosen one, if that is at the end of the grid;
        below all, if every training diverged. None if there is none."""
        all_diverged = all(loss is not None and math.isinf(loss) for loss in self.losses.values())
        if self.edge == "lowest" or all_diverged:
            return max((rate for rate in rates if rate < min(self.losses)), default=None)
        return min((rate for rate in rates if rate > max(self.losses)), default=None) if self.edge else None


def choose(group: Sequence[Cell], rates: Mapping[str, float], losses: Mapping[str, float | None]) -> Choice:
    """rates: learning rates by the cells' names; losses: validation losses, None if the training failed."""
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
    """A finished run's last."""
    return float(pd.read_parquet(run / METRICS)["val_loss"].dropna().iloc[-1])
