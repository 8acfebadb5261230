"""What all pictures of a report share: panels in a row, lines, and their names at the right end. By matplotlib."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from extrapolate import files
from extrapolate.reports.escaping import label
from extrapolate.reports.styles import CROWD, FURTHEST, GREY, MOST_MARKERS, Style, drawable, limits

MOST_PANELS = 6
# Inches. Every picture has panels of one height, so that so many names fit beside them.
HEIGHT, WIDE, NARROW = 3.5, 5.8, 2.5  # of a panel; wide where it is the only one
LEFT, ABOVE, BELOW = 0.75, 0.4, 0.55  # for numbers, titles, and what an axis counts
SHARED_GAP, OWN_GAP = 0.2, 0.75  # between panels with one scale, and with scales of their own
LEADER, SAMPLE, ROW, NOTE = 0.3, 0.35, 0.16, 0.17  # from a line's end to its name, beside it, and below it
DARK_GREY = "#5C6066"  # of notes
SMALL = 8  # points
DOTS = 150  # an inch


class Sheet:
    """A picture in the making: so many panels in a row, from bottom to top on one scale, or each on its own.

    style: how each model is drawn. named: the models that are coloured, with their names at the right of the last
    panel, each at the height at which its line ends. All others are thin and grey, and counted in words. What leaves
    a panel is marked at its edge.
    """

    def __init__(self, count: int, style: Mapping[str, Style], named: Sequence[str], *, one_scale: bool = True) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.figure: Any = Figure()
        FigureCanvasAgg(self.figure)  # measures texts
        self.panels: list[Any] = list(self.figure.subplots(1, count, squeeze=False, sharey=one_scale)[0])
        self._style, self._named, self._gap = style, set(named), SHARED_GAP if one_scale else OWN_GAP
        self._curves: list[tuple[Any, str, Any]] = []  # panel, name, line
        self._references: list[tuple[Any, pd.Series[Any]]] = []  # panel, values
        self._left: dict[str, float] = {}  # what leaves a panel, and to where
        self._notes: list[str] = []
        for panel in self.panels:
            panel.grid(alpha=0.3)
            panel.tick_params(labelsize=SMALL)

    def curve(self, panel: Any, x: Any, y: "pd.Series[Any]", model: str, **changed: Any) -> None:
        """Draws a model's line, thin and grey where the model is not named."""
        if model in self._named:
            every = max(1, len(y) // MOST_MARKERS)  # of a long line, some points have its marker
            style = {"markersize": 4, "linewidth": 1.5, "markevery": every, **self._style[model], **changed}
        else:
            style = {"color": GREY, "linewidth": 0.6, "alpha": 0.5, "zorder": 1.2}
            style |= {"marker": "o", "markersize": 3} if len(y) == 1 else {}  # a line of one point is not seen
        (line,) = panel.plot(x, drawable(y), **style)
        self._curves.append((panel, model, line))

    def reference(self, panel: Any, x: Any, y: "pd.Series[Any]", name: str) -> None:
        """Draws a line that is no model's, grey and dashed. A panel shows it in any case."""
        (line,) = panel.plot(x, drawable(y), color=GREY, linestyle="--", linewidth=1, label=name)
        self._curves.append((panel, name, line))
        self._references.append((panel, y))
        self._named.add(name)

    def band(self, panel: Any, x: Any, low: "pd.Series[Any]", high: "pd.Series[Any]", model: str) -> None:
        """Fills the room between two lines in a model's colour, where both have values."""
        color = self._style[model]["color"]
        within = {"facecolor": (color, 0.1), "edgecolor": (color, 0.5), "linewidth": 0.7, "linestyle": ":"}
        panel.fill_between(x, drawable(low), drawable(high), **within)

    def seeds(self, panel: Any, rows: pd.DataFrame, model: str, against: str = "factor") -> None:
        """Draws a named model's losses against a column, a thin line for each of its runs; nothing where it has one."""
        if model not in self._named or rows["run"].nunique() < 2:
            return
        for _, mine in rows.sort_values(against).groupby("run"):
            self.thin(panel, mine[against], mine["loss"], model)

    def thin(self, panel: Any, x: Any, y: "pd.Series[Any]", model: str, width: float = 0.6) -> None:
        """Draws a thin line of a named model behind its own: a seed, say."""
        if model in self._named:
            panel.plot(x, drawable(y), color=self._style[model]["color"], linewidth=width, alpha=0.5, zorder=1.5)

    def fit(
        self, panel: Any, values: "pd.Series[Any]", around: pd.DataFrame | None = None, since: float = -np.inf
    ) -> None:
        """Lets a panel, and those that share its scale, show these values but for a few that are far from the rest.

        around: the seeds and bands of the values, see `styles.limits`. What leaves it at `since` or further to the
        right is marked, and said in words.
        """
        shared = panel.get_shared_y_axes().get_siblings(panel)
        references = [y for where, y in self._references if where in shared]
        if (ends := limits(values, *references, around=around)) is None:
            return
        panel.set_ylim(*ends)
        for where, name, line in self._curves:
            if where in shared:
                self._mark(where, name, line, ends, since)

    def _mark(self, panel: Any, name: str, line: Any, ends: tuple[float, float], since: float) -> None:
        """Marks at a panel's edge where a line is last beyond its ends, and keeps how far it goes."""
        x_N, y_N = _points(line)
        for beyond_N, end, marker in ((y_N > ends[1], ends[1], "^"), (y_N < ends[0], ends[0], "v")):
            gone_N = beyond_N & (x_N >= since)
            if gone_N.any():
                style = {"color": line.get_color(), "alpha": line.get_alpha(), "marker": marker, "markersize": 4}
                panel.plot(x_N[gone_N][-1:], [end], linestyle="", clip_on=False, **style)
                self._left[name] = max([self._left.get(name, 0.0), *y_N[gone_N]], key=abs)

    def note(self, text: str) -> None:
        """A line of text below the panels."""
        self._notes.append(text)

    def save(self, path: Path) -> None:
        """Puts everything in its place, and writes the picture. The file's suffix decides its format."""
        with warnings.catch_warnings():  # a name in letters that the font lacks: they are drawn as boxes
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            self._lay_out()
        save(self.figure, path)

    def _lay_out(self) -> None:
        figure, count = self.figure, len(self.panels)
        self._say_what_is_grey()
        width = WIDE if count == 1 else NARROW
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
        for at, panel in enumerate(self.panels):
            left = LEFT + at * (width + self._gap)
            panel.set_position([left / whole[0], below / whole[1], width / whole[0], HEIGHT / whole[1]])
        self._place(texts, right, width, below)

    def _say_what_is_grey(self) -> None:
        grey = {name for _, name, _ in self._curves} - self._named
        gone = [value for name, value in self._left.items() if name in grey]
        if grey:
            out = f"; off the scale: {len(gone)}, to {_far(max(gone, key=abs))}" if gone else ""
            for _, name, line in self._curves:
                if name in grey and len(grey) > CROWD:
                    line.set_alpha(0.2)
            models = "a model" if len(grey) == 1 else f"{len(grey)} models"
            self.note(f"Grey: {models} that the picture does not name{out}. The table has all.")

    def _names(self) -> list[tuple[str, Any]]:
        """The text of each name, and the line that it stands beside: the last panel's, if it has points."""
        found: dict[str, Any] = {}
        for panel, name, line in self._curves:
            if name in self._named and (name not in found or (panel is self.panels[-1] and len(_points(line)[0]))):
                found[name] = line
        return [
            (label(name) + (f"  (to {_far(self._left[name])})" if name in self._left else ""), line)
            for name, line in found.items()
        ]

    def _place(self, texts: Sequence[Any], right: float, width: float, below: float) -> None:
        """Moves the names to where their lines end, none over another, and leads each line to its name."""
        from matplotlib.lines import Line2D

        last, inches = self.panels[-1], self.figure.dpi_scale_trans
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
        heights = below + spread(np.array([y for _, y in ends]), ROW, HEIGHT)
        for text, line, (x, y), height in zip(texts, lines, ends, heights, strict=True):
            text.set_y(height)
            colour, sample = line.get_color(), right + LEADER
            thin = {"color": colour, "linewidth": 0.6, "alpha": 0.6, "transform": inches}
            if x == x:
                self.figure.add_artist(Line2D([x, right, sample], [below + y, below + y, height], **thin))
            self.figure.add_artist(
                Line2D(
                    [sample, sample + SAMPLE / 2, sample + SAMPLE - 0.06], [height] * 3, transform=inches,
                    color=colour, linestyle=line.get_linestyle(), linewidth=line.get_linewidth(),
                    marker=line.get_marker(), markersize=4, markevery=[1],
                )
            )  # fmt: skip


def _points(line: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where a line has values: x_N and y_N."""
    x_N, y_N = (np.asarray(data, float) for data in line.get_data())
    there_N = np.isfinite(x_N) & np.isfinite(y_N)
    return x_N[there_N], y_N[there_N]


def _far(value: float) -> str:
    return f"{'-' if value < 0 else ''}infinity" if abs(value) >= FURTHEST else f"{value:.3g}"


def spread(wanted_N: np.ndarray, gap: float, room: float) -> np.ndarray:
    """The places nearest to those wanted (least squares) that are `gap` apart and within 0 and `room`, in one order.

    Where they do not all fit, the room ends later.
    """
    order_N = np.argsort(wanted_N, kind="stable")
    blocks: list[list[float]] = []  # sum, count: neighbours that push each other share their mean
    for at, place in enumerate(wanted_N[order_N]):
        blocks.append([place - at * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    means_N = np.repeat([total / count for total, count in blocks], [int(count) for _, count in blocks])
    found_N = np.empty(len(wanted_N))
    found_N[order_N] = np.clip(means_N, 0, max(0, room - (len(wanted_N) - 1) * gap)) + gap * np.arange(len(wanted_N))
    return found_N


def tokens_below(panel: Any) -> None:
    """Says that the axis below a panel counts training tokens: 200k, 1.5M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    panel.set_xlabel("training tokens", fontsize=SMALL)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def save(figure: Any, path: Path) -> None:
    """Writes a figure atomically. The file's suffix decides its format."""

    def write(to: Path) -> None:
        with warnings.catch_warnings():  # a name in letters that the font lacks: they are drawn as boxes
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(to, format=path.suffix[1:], dpi=DOTS, metadata=_undated(path))

    files.write_atomically(path, write)


def _undated(path: Path) -> dict[str, None] | None:
    return {"Date": None} if path.suffix == ".svg" else None
