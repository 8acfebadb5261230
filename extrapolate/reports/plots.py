"""Draws charts with matplotlib: panels in a row, with names at the ends of their lines, and heat maps."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from extrapolate import files
from extrapolate.reports.chart import INK, Axis, Chart, Heat, Panel, Series, smoothed
from extrapolate.reports.escaping import label, one_line
from extrapolate.reports.fonts import with_all_letters
from extrapolate.reports.styles import CROWD, FURTHEST, GREY, MANY, MOST_MARKERS, drawable, spread

# Inches. Panels have the same height in every picture, so that the same number of names fits beside them.
HEIGHT, WIDE, NARROW = 3.5, 5.8, 2.5  # of a panel; wide if it is the only one
LEFT, ABOVE, BELOW = 0.75, 0.4, 0.55  # for tick labels, panel titles, and the title of x
SHARED_GAP, OWN_GAP = 0.2, 0.75  # between panels with one scale, or with scales of their own
LEADER, SAMPLE, ROW, NOTE = 0.3, 0.35, 0.16, 0.17  # from panel to legend; a legend's line and row; a row of notes
CELL, SLIM, FEW_COLUMNS = (
    (0.75, 0.24),
    0.28,
    14,
)  # a map's cell; the width of one without text, if there are more columns
DARK_GREY = "#5C6066"  # of notes
SMALL = 8  # points
DOTS = 150  # per inch


@contextmanager
def own_settings(more: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
    """Uses matplotlib's defaults, and `more`, so that the same rows always give the same picture.

    On its first import, matplotlib reads a `matplotlibrc` from the current folder, which may even be damaged; it is
    therefore imported from the folder of its own one. The caller's settings are restored at the end.
    """
    found = None if "matplotlib" in sys.modules else find_spec("matplotlib")
    with nullcontext() if found is None else chdir(Path(str(found.origin)).parent / "mpl-data"):
        import matplotlib as mpl
        import matplotlib.style
    settings: Any = {"svg.hashsalt": "extrapolate", "pdf.fonttype": 42, **more}  # 42: text stays text
    with mpl.style.context("default"), mpl.rc_context(settings):
        yield


def draw(chart: Chart, path: Path) -> None:
    """Draws a chart. The file's suffix decides its format."""
    with_all_letters(lambda: save(figure(chart), path))


def figure(chart: Chart, wide: float = WIDE) -> Any:
    """The picture of a chart. wide: inches of a single panel.

    In SVG, the group of a line has the `gid` of its number among all series as its id.
    """
    return _map(chart.panels) if isinstance(chart.panels, Heat) else _Sheet(chart, wide).figure


def gid(number: int) -> str:
    """The id of the line of a series."""
    return f"series-{number}"


class _Sheet:
    """The picture of some panels.

    The names of series with a style are to the right of the last panel, each at the height at which its line ends. All
    other series are thin and grey, and counted in a note. Lines that leave a panel are marked at its edge.
    """

    def __init__(self, chart: Chart, wide: float) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        panels = chart.panels
        assert not isinstance(panels, Heat)
        one_scale = all(panel.y == panels[0].y for panel in panels)
        self.figure: Any = Figure()
        FigureCanvasAgg(self.figure)  # to measure texts
        self._axes: list[Any] = list(self.figure.subplots(1, len(panels), squeeze=False, sharey=one_scale)[0])
        self._kept, self._gap = chart.kept, SHARED_GAP if one_scale else OWN_GAP
        self._width = wide if len(panels) == 1 else NARROW
        self._lines: list[tuple[Any, Series, Any]] = []  # axes, series and line of what is named or grey
        self._drawn = 0  # series so far
        self._left: dict[str, float] = {}  # the furthest value outside its panel, by name
        self._notes: list[str] = []
        for axes, panel in zip(self._axes, panels, strict=True):
            self._draw(axes, panel)
        self._axes[0].set_ylabel(one_line(panels[0].y.title), parse_math=False)
        self._lay_out()

    def _draw(self, axes: Any, panel: Panel) -> None:
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=SMALL)
        if panel.zero:
            axes.axhline(0, color="grey", linewidth=1)
        crowded = self._kept is not None and sum(not one.is_behind for one in panel.series) > MANY
        for number, one in enumerate(panel.series, self._drawn):
            if one.kind == "thin" and crowded:
                continue  # with many models, single steps would hide the averages
            x, y = _places(panel.x, one.x), pd.Series(list(one.y), dtype=float)
            if self._kept is not None and not one.is_behind:
                y = smoothed(y, self._kept)
            if one.style is not None and len(band := one.band()):
                colour = one.style["color"]
                within = {"facecolor": (colour, 0.1), "edgecolor": (colour, 0.5), "linewidth": 0.7, "linestyle": ":"}
                axes.fill_between(_places(panel.x, band["x"]), band["low"], band["high"], **within)
            (line,) = axes.plot(x, drawable(y), gid=gid(number), **self._look(one, len(y)))
            if not one.is_behind:
                self._lines.append((axes, one, line))
        self._drawn += len(panel.series)
        several = len(self._axes) > 1
        axes.set_title(one_line(panel.title), parse_math=False, fontsize="medium" if several else None)
        axes.set_xlabel(one_line(panel.x.title), parse_math=False, fontsize=SMALL if several else None)
        _scale(axes, panel.x)
        if panel.y.range is not None:
            axes.set_ylim(*panel.y.range)
            for where, one, line in self._lines:
                if where is axes:
                    self._mark(axes, one.name, line, panel.y.range, panel.since)

    def _look(self, one: Series, points: int) -> dict[str, Any]:
        """How a series is drawn, as keyword arguments of matplotlib."""
        if one.is_reference:
            stairs = {"drawstyle": "steps-post"} if one.kind == "steps" else {}
            return {"color": GREY, "linestyle": "--", "linewidth": 1, **stairs}
        alone = one.kind == "points"
        if one.style is None:
            dot = {"marker": "o", "markersize": 3} if points == 1 or alone else {}  # a line of one point is invisible
            grey = {"color": GREY, "linewidth": 0.6, "alpha": 0.5, "zorder": 1.2}
            return grey | dot | ({"linestyle": ""} if alone else {})
        if one.kind == "thin":
            width = 0.6 if self._kept is None else 0.4
            return {"color": one.style["color"], "linewidth": width, "alpha": 0.5, "zorder": 1.5}
        if one.kind == "crosses":
            cross = {"marker": "X", "markersize": 8, "markeredgecolor": "white", "linestyle": ""}
            return {"color": one.style["color"], **cross}
        every = max(1, points // MOST_MARKERS)  # a long line has markers on some of its points
        look = {"markersize": 4, "linewidth": 1.5, "markevery": every, **one.style}
        return look | ({"linestyle": "", "markersize": 6} if alone else {})

    def _mark(self, axes: Any, name: str, line: Any, ends: tuple[float, float], since: float) -> None:
        """Marks the panel's edge where a line is last outside it, and records how far the line goes."""
        x_N, y_N = _points(line)
        for beyond_N, end, marker in ((y_N > ends[1], ends[1], "^"), (y_N < ends[0], ends[0], "v")):
            gone_N = beyond_N & (x_N >= since)
            if gone_N.any():
                style = {"color": line.get_color(), "alpha": line.get_alpha(), "marker": marker, "markersize": 4}
                axes.plot(x_N[gone_N][-1:], [end], linestyle="", clip_on=False, **style)
                self._left[name] = max([self._left.get(name, 0.0), *y_N[gone_N]], key=abs)

    def _lay_out(self) -> None:
        figure, count = self.figure, len(self._axes)
        self._say_what_is_grey()
        width = self._width
        right = LEFT + count * width + (count - 1) * self._gap
        below = BELOW + NOTE * len(self._notes)
        texts = [
            figure.text(right + LEADER + SAMPLE, 0, text, fontsize=SMALL, va="center", transform=figure.dpi_scale_trans)
            for text, _ in self._names()
        ]
        notes = [
            figure.text(0.1, 0.1 + NOTE * at, text, fontsize=SMALL, color=DARK_GREY, transform=figure.dpi_scale_trans)
            for at, text in enumerate(reversed(self._notes))
        ]
        figure.dpi = DOTS
        renderer = figure.canvas.get_renderer()
        ends = [text.get_window_extent(renderer).x1 / DOTS for text in [*texts, *notes]]
        whole = (max([right, *ends]) + 0.1, below + HEIGHT + ABOVE)
        figure.set_size_inches(*whole)
        for at, axes in enumerate(self._axes):
            left = LEFT + at * (width + self._gap)
            axes.set_position([left / whole[0], below / whole[1], width / whole[0], HEIGHT / whole[1]])
        self._place(texts, right, width, below)

    def _say_what_is_grey(self) -> None:
        grey = {one.name for _, one, _ in self._lines if _is_grey(one)}
        gone = [value for name, value in self._left.items() if name in grey]
        if grey:
            out = f"; off the scale: {len(gone)}, to {_far(max(gone, key=abs))}" if gone else ""
            for _, one, line in self._lines:
                if one.name in grey and len(grey) > CROWD:
                    line.set_alpha(0.2)
            models = "a model" if len(grey) == 1 else f"{len(grey)} models"
            self._notes.append(f"Grey: {models} that the picture does not name{out}. The table has all.")

    def _names(self) -> list[tuple[str, Any]]:
        """The text of each name, and the line that it belongs to: that of the last panel, if it has points."""
        found: dict[str, Any] = {}
        for axes, one, line in self._lines:
            last = axes is self._axes[-1] and len(_points(line)[0])
            if not _is_grey(one) and (one.name not in found or last):
                found[one.name] = line
        return [
            (label(name) + (f"  (to {_far(self._left[name])})" if name in self._left else ""), line)
            for name, line in found.items()
        ]

    def _place(self, texts: Sequence[Any], right: float, width: float, below: float) -> None:
        """Moves the names to the heights of their lines' ends, without overlap.

        Connects a name with a line that goes on as far as any. To one that ends before, as no value is there, the
        connection would look like its values.
        """
        from matplotlib.lines import Line2D

        last, inches = self._axes[-1], self.figure.dpi_scale_trans
        lines = [line for _, line in self._names()]
        to_share = last.transScale + last.transLimits
        ends = []
        for line in lines:
            x_N, y_N = _points(line)
            if line.axes is not last or not len(x_N):
                ends.append((np.nan, 0.0))
                continue
            at = np.clip(to_share.transform((x_N[-1], y_N[-1])), 0, 1)
            ends.append((right - width + at[0] * width, at[1] * HEIGHT))
        furthest = max((x for x, _ in ends if x == x), default=0.0)
        heights = below + spread(np.array([y for _, y in ends]), ROW, HEIGHT)
        for text, line, (x, y), height in zip(texts, lines, ends, heights, strict=True):
            text.set_y(height)
            colour, sample = line.get_color(), right + LEADER
            thin = {"color": colour, "linewidth": 0.6, "alpha": 0.6, "transform": inches}
            if x >= furthest:
                self.figure.add_artist(Line2D([x, right, sample], [below + y, below + y, height], **thin))
            self.figure.add_artist(
                Line2D(
                    [sample, sample + SAMPLE / 2, sample + SAMPLE - 0.06], [height] * 3, transform=inches,
                    color=colour, linestyle=line.get_linestyle(), linewidth=line.get_linewidth(),
                    marker=line.get_marker(), markersize=4, markevery=[1],
                )
            )  # fmt: skip


def _points(line: Any) -> tuple[np.ndarray, np.ndarray]:
    """The finite points of a line: x_N and y_N."""
    x_N, y_N = (np.asarray(data, float) for data in line.get_data())
    there_N = np.isfinite(x_N) & np.isfinite(y_N)
    return x_N[there_N], y_N[there_N]


def _far(value: float) -> str:
    return f"{'-' if value < 0 else ''}infinity" if abs(value) >= FURTHEST else f"{value:.3g}"


def _is_grey(one: Series) -> bool:
    return one.style is None and not one.is_reference


def _places(axis: Axis, x: Any) -> list[float]:
    """The coordinates of values on an axis."""
    places = {value: float(at) for at, value in enumerate(axis.ticks)}
    return [places[value] for value in x] if axis.scale == "even" else [float(value) for value in x]


def _scale(axes: Any, axis: Axis) -> None:
    """Sets the scale, ticks and range of x. Large numbers are written as 200k and 1.5M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    if axis.scale == "log":
        axes.set_xscale("log", base=2)
    if axis.ticks:
        axes.set_xticks(_places(axis, axis.ticks), list(axis.ticks.values()))
        axes.minorticks_off()
    elif max(map(abs, axes.get_xlim())) >= 10_000:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if axis.range is not None:
        axes.set_xlim(*axis.range)


def _map(heat: Heat) -> Any:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    few = len(heat.columns) <= FEW_COLUMNS
    width, height = (CELL[0] if few else SLIM) * len(heat.columns), CELL[1] * len(heat.rows)
    names = [label(name) for name in heat.rows]
    left, above, below = 0.3 + 0.068 * max(map(len, names)), 0.4, 0.5
    whole = (left + max(width, 3.0) + 0.2, above + height + below)
    figure = Figure(figsize=whole)
    axes = figure.add_axes((left / whole[0], below / whole[1], width / whole[0], height / whole[1]))
    colours = LinearSegmentedColormap.from_list("", heat.colours())
    low, high = heat.ends()
    axes.imshow(np.clip(heat.values_RC, low, high), cmap=colours, vmin=low, vmax=high, aspect="auto")
    for row, texts in enumerate(heat.texts() if few else []):
        for column, text in enumerate(texts):
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL, color=INK)
    axes.set_xticks(range(len(heat.columns)), heat.columns, fontsize=SMALL)
    axes.set_yticks(range(len(names)), names, fontsize=SMALL)
    axes.set_xlabel(heat.below, fontsize=SMALL)
    axes.tick_params(length=0)
    figure.text(0.1 / whole[0], 1 - 0.1 / whole[1], heat.title, va="top")
    return figure


def save(figure: Any, path: Path) -> None:
    """Writes a figure atomically. The file's suffix decides its format."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    files.write_atomically(path, partial(figure.savefig, format=path.suffix[1:], dpi=DOTS, metadata=undated))
