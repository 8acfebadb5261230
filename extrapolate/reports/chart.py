"""Descriptions of charts, which `plots` draws."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from extrapolate.reports.styles import Style, drawable

MOST_ROWS = 40  # of a map that is still legible
BETTER, NEITHER, WORSE = "#6BAEDD", "#F4F4F2", "#F0925A"  # colours of a map's cells; INK is legible on all of them
INK = "#101214"
HAIR = 0.004  # of an axis's range: about the width of a line


@dataclass(frozen=True)
class Axis:
    """One axis of a panel. The renderer chooses what is not given.

    scale: `even` spaces all `ticks` evenly, and then every x of the panel is one of them. ticks: value -> label.
    range: the values that are shown; points outside are marked or counted.
    """

    title: str = ""
    scale: Literal["linear", "log", "even"] = "linear"
    ticks: Mapping[float, str] = field(default_factory=dict)
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Series:
    """A line or some points, named at the end of the line or in the legend.

    style: None for a thin grey line without a name in the picture. low, high: a band around y. texts: what the tooltip
    of each point says after its value, on the page.

    kind: `line`, `points`; `thin`, a line behind the one with the same name, such as one seed; `crosses`, marks on the
    line with the same name; `reference`, a grey dashed line that is not a model, and `steps`, such a line as a
    staircase.
    """

    name: str
    x: Iterable[float]
    y: Iterable[float]
    style: Style | None = None
    kind: Literal["line", "points", "thin", "crosses", "reference", "steps"] = "line"
    low: Iterable[float] | None = None
    high: Iterable[float] | None = None
    texts: Sequence[str] = ()

    def band(self) -> pd.DataFrame:
        """x, low and high of the points at which the band has both ends; empty without a band."""
        if self.style is None or self.low is None or self.high is None:
            return pd.DataFrame(columns=["x", "low", "high"])
        ends = pd.DataFrame({"x": list(self.x), "low": list(self.low), "high": list(self.high)}, dtype=float).dropna()
        return ends.apply(drawable)

    @property
    def is_reference(self) -> bool:
        """Whether it is not a model."""
        return self.kind in ("reference", "steps")

    @property
    def is_behind(self) -> bool:
        """Whether it belongs to another line and has no name of its own."""
        return self.kind in ("thin", "crosses")


@dataclass(frozen=True)
class Panel:
    """Series on one pair of axes. since: points to the left of it may leave the range of y without being counted.

    title: shown above the picture; on the page, it labels y if that has no title, and the switch between panels.
    """

    series: Sequence[Series]
    x: Axis
    y: Axis = field(default_factory=Axis)
    title: str = ""
    zero: bool = False  # whether a line marks y = 0
    since: float = -np.inf


@dataclass(frozen=True)
class Heat:
    """A heat map of numbers by row and column.

    values_RC: NaN for an empty cell. most: the value with the strongest colour. signed: whether -most has a strong
    colour too, a different one. digits: decimals in a cell. title: above the picture. below: what the columns are.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values_RC: np.ndarray
    most: float
    signed: bool = False
    digits: int = 3
    below: str = "evaluation length / training length"

    def texts(self) -> list[list[str]]:
        """The texts of the cells."""
        sign = "+" if self.signed else ""
        return [["" if value != value else f"{value:{sign}.{self.digits}f}" for value in row] for row in self.values_RC]

    def colours(self) -> list[str]:
        """The colours from the least value to the greatest."""
        return [BETTER, NEITHER, WORSE] if self.signed else [NEITHER, BETTER]

    def ends(self) -> tuple[float, float]:
        """The values of the first and the last colour."""
        return (-self.most if self.signed else 0.0), self.most


@dataclass(frozen=True)
class Chart:
    """What a chart shows, and the file name of its picture.

    text: the alternative text, a few words. panels: they share a scale if their y-axes are equal; the names of series
    are beside the last one. kept: if given, lines are exponential moving averages that keep this share at each point.
    caption: what is drawn, and under which conditions.
    """

    text: str
    file: str
    panels: Sequence[Panel] | Heat
    kept: float | None = None
    caption: str = ""


def seeds(rows: pd.DataFrame, model: str, style: Style | None, against: str = "factor") -> list[Series]:
    """A thin line for each run of a named model: its losses against a column. None if the model has one run."""
    if style is None or rows["run"].nunique() < 2:
        return []
    runs = rows.sort_values(against).groupby("run")
    return [Series(model, mine[against], mine["loss"], style, "thin") for _, mine in runs]


def coinciding(lines: Sequence[Series], range_: tuple[float, float] | None) -> list[list[str]]:
    """The names of lines that look like one: nowhere further apart than HAIR of the axis's range."""
    low, high = range_ or (0.0, 0.0)
    groups: list[list[Series]] = []
    for one in (line for line in lines if line.kind == "line" and line.style is not None):
        y = np.array(list(one.y), dtype=float)
        for group in groups:
            apart = np.abs(y - np.array(list(group[0].y), dtype=float))
            if len(y) and list(one.x) == list(group[0].x) and (apart < HAIR * (high - low)).all():
                group.append(one)
                break
        else:
            groups.append([one])
    return [[one.name for one in group] for group in groups if len(group) > 1]


def differences(title: str, table: pd.DataFrame, rows: Sequence[str]) -> Heat:
    """A table of differences as a map, with names for its rows.

    The colours are strongest at the 90th percentile, so that one large difference does not make the others pale.
    """
    values_RC = table.to_numpy(float)
    sizes = np.abs(values_RC[np.isfinite(values_RC)])
    most = max(0.01, float(np.quantile(sizes, 0.9))) if len(sizes) else 1.0
    return Heat(title, list(rows), [str(name) for name in table.columns], values_RC, most, signed=True)


def smoothed(losses: "pd.Series[float]", kept: float) -> "pd.Series[float]":
    """The exponential moving average, with weights that add up to 1 from the first point on.

    From the first infinite loss on, it is infinite: skipping that loss would hide that the training diverged.
    """
    ended = np.isinf(losses.to_numpy()).cumsum() > 0  # pandas would skip it
    return losses.ewm(alpha=1 - kept).mean().mask(ended, np.inf)
