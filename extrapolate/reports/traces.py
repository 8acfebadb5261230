"""Draws charts for the HTML page: traces and layouts in plotly's JSON schema.

Names are not escaped here: assets/charts.js does that, and sets the colours of axes and grids.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from extrapolate.reports.chart import INK, Axis, Chart, Heat, Panel, Series
from extrapolate.reports.escaping import markdown, one_line, short
from extrapolate.reports.page import Block, Switch
from extrapolate.reports.styles import CROWD, DASHES, FURTHEST, GLYPHS, GREY, MARKERS, MOST_MARKERS, drawable, spread

Trace = dict[str, Any]
DIGITS = 4  # after the decimal point
MOST_POINTS, MOST_OF_ALL = 1_000, 40_000  # points of a line, and of a chart, so that the page stays small
MOST_ENDS, LONGEST_END = 21, 32  # names that have room at the ends of lines, and their characters
ABREAST = 2  # panels side by side; if there are more, the page shows one at a time
_SYMBOLS = dict(
    zip(
        MARKERS,
        (
            "circle", "square", "triangle-up", "diamond", "triangle-down", "triangle-left", "triangle-right",
            "pentagon", "star",
        ),
        strict=True,
    )
)  # fmt: skip
_DASH = {"-": "solid", **dict(zip(DASHES, ("dot", "dash", "dashdot", "longdash"), strict=True))}


@dataclass(frozen=True)
class Plot(Block):
    """A chart: a picture in Markdown, and drawn by the browser on the HTML page."""

    chart: Chart

    def markdown(self) -> str:
        picture = f"![{markdown(self.chart.text)}]({self.chart.file})"
        return f"{picture}\n\n{markdown(self.chart.caption)}" if self.chart.caption else picture

    def html(self) -> Markup:
        panels = self.chart.panels
        if not isinstance(panels, Heat) and len(panels) > ABREAST:
            views = {one.title: [Plot(replace(self.chart, panels=[one]))] for one in panels}
            return Switch(self.chart.file, f"{self.chart.text}:", views, len(views) - 1).html()
        # Inside a script, HTML only recognises its end tag, which must not occur in the JSON.
        data = json.dumps(figure(self.chart), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        return Markup(
            '<figure class="chart"><div class="plot" role="img" aria-label="{}"></div>'
            '<script type="application/json">{}</script><figcaption>{}</figcaption></figure>'
        ).format(self.chart.text, Markup(data), one_line(self.chart.caption or self.chart.text))


def figure(chart: Chart) -> dict[str, Any]:
    """The traces and the layout of a chart with one map, or a few panels side by side, and `kept` of `Chart`."""
    if isinstance(chart.panels, Heat):
        return _map(chart.panels)
    traces: list[Trace] = []
    layout: dict[str, Any] = {"hovermode": "closest", "annotations": []}
    most = most_points(chart)
    for at, panel in enumerate(chart.panels):
        number = "" if at == 0 else str(at + 1)
        here = {"xaxis": f"x{number}", "yaxis": f"y{number}"} if number else {}
        behind = {"showlegend": False} if at else {}  # all panels have the names of the first
        drawn = [trace for one in panel.series for trace in _traces(one, most, chart.kept)]
        traces += [trace | here | behind for trace in _arranged(drawn)]
        layout[f"xaxis{number}"] = _axis(panel.x)
        layout[f"yaxis{number}"] = _axis(panel.y if panel.y.title else replace(panel.y, title=panel.title))
        if len(chart.panels) > 1:
            layout[f"xaxis{number}"] |= {"domain": [0.56, 1] if at else [0, 0.44], "anchor": f"y{number}"}
            layout[f"yaxis{number}"]["anchor"] = f"x{number}"
        if gone := _gone(panel):
            layout["annotations"].append(
                {
                    "text": f"Off the scale: {gone} points. Double click: all.", "xref": f"x{number} domain",
                    "yref": f"y{number} domain", "x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom",
                    "showarrow": False, "font": {"size": 11},
                }
            )  # fmt: skip
    if len(chart.panels) == 1 and chart.kept is None and (names := _ends(chart.panels[0])):
        layout["annotations"] += names
        layout |= {
            "showlegend": False,
            "margin": {"l": 60, "r": 30 + 7 * max(len(one["text"]) for one in names), "t": 30, "b": 50},
        }
    return {"traces": traces, "layout": layout, "kept": chart.kept}


def most_points(chart: Chart) -> int:
    """The most points that are drawn of a line."""
    lines = 1 if isinstance(chart.panels, Heat) else sum(len(panel.series) for panel in chart.panels)
    return min(MOST_POINTS, max(2, MOST_OF_ALL // max(1, lines)))


def numbers(values: Iterable[Any], digits: int = DIGITS) -> list[float | None]:
    """The values rounded for JSON: None for NaN and infinity, and 4 rather than 4.0."""
    found = drawable(pd.Series(list(values), dtype=float))
    rounded = [round(value, digits) if abs(value) < FURTHEST else None for value in found]
    return [int(value) if value is not None and value.is_integer() else value for value in rounded]


def _traces(one: Series, most: int, kept: float | None) -> list[Trace]:
    """The band of a series, and its line, evenly thinned if it has more than `most` points."""
    x, y = list(one.x), list(one.y)
    every = slice(None, None, -(-len(x) // most) or 1)
    trace: Trace = {"type": "scatter", "name": short(one.name), "x": numbers(x[every]), "y": numbers(y[every])}
    if one.seconds is not None and any(seconds := numbers(list(one.seconds)[every], digits=1)):
        trace["meta"] = {"seconds": seconds}
    if any(one.texts):
        trace["text"] = list(one.texts[every])
    if kept is None:
        trace = _compact(trace)
    return [*_band(one), trace | _look(one)]


def _look(one: Series) -> Trace:
    """How a series is drawn. Lines behind another and marks on it are in its legend group, to be hidden with it."""
    if one.is_reference:
        line = {"color": GREY, "dash": "dash", "width": 1.5} | ({"shape": "hv"} if one.kind == "steps" else {})
        return {"mode": "lines", "line": line, "legendgroup": one.name}
    if one.style is None:  # behind the others, and named only in its tooltip
        shape = (
            {"marker": {"size": 6, "color": GREY}} if one.kind == "points" else {"line": {"color": GREY, "width": 1}}
        )
        return {"mode": _mode(one), "opacity": 0.4, "showlegend": False} | shape
    colour = one.style["color"]
    look: Trace = {"mode": _mode(one), "legendgroup": one.name}
    if one.kind == "thin":
        line = {"color": colour, "width": 0.8}
        return look | {"line": line, "opacity": 0.6, "hoverinfo": "skip", "showlegend": False}
    if one.kind == "crosses":
        return look | {"marker": {"symbol": "x", "size": 9, "color": colour}, "showlegend": False}
    # A long line has markers on some of its points; they tell models with the same colour apart.
    look["marker"] = {"symbol": _SYMBOLS[one.style["marker"]], "size": 7, "maxdisplayed": MOST_MARKERS, "color": colour}
    return look | {"line": {"color": colour, "dash": _DASH[one.style["linestyle"]], "width": 2}}


def _mode(one: Series) -> str:
    if one.kind in ("points", "crosses"):
        return "markers"
    return "lines+markers" if one.kind == "line" and one.style is not None else "lines"


def _compact(trace: Trace) -> Trace:
    """The trace with `x0` and `dx` in place of `x`, if its points are evenly spaced."""
    x = trace["x"]
    steps = {None if None in pair else round(pair[1] - pair[0], DIGITS) for pair in pairwise(x)}
    if len(x) < 4 or len(steps) != 1 or None in steps:
        return trace
    return {name: value for name, value in trace.items() if name != "x"} | {"x0": x[0], "dx": steps.pop()}


def _band(one: Series) -> list[Trace]:
    """The area between two lines, in the legend group of the model's line. Empty without a band."""
    ends = one.band()
    if one.style is None or ends.empty:
        return []
    colour = one.style["color"]
    common = {
        "type": "scatter", "mode": "lines", "legendgroup": one.name, "showlegend": False, "hoverinfo": "skip",
        "name": short(one.name), "line": {"color": colour, "width": 0.7, "dash": "dot"}, "x": numbers(ends["x"]),
    }  # fmt: skip
    inside = f"rgba({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))}, 0.1)"
    return [
        common | {"y": numbers(ends["low"])},
        common | {"y": numbers(ends["high"]), "fill": "tonexty", "fillcolor": inside},
    ]


def _arranged(traces: Sequence[Trace]) -> list[Trace]:
    """Puts lines in front of bands, and both in front of grey lines, which are paler if there are many."""
    grey = [trace for trace in traces if "legendgroup" not in trace]
    pale = {"opacity": 0.15} if len(grey) > CROWD else {}
    rest = [trace for trace in traces if "legendgroup" in trace]
    return [
        *(trace | pale for trace in grey),
        *sorted(rest, key=lambda trace: trace.get("line", {}).get("width") != 0.7),
    ]


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {"title": {"text": axis.title}}
    if axis.scale == "even":
        return made | {"type": "category", "categoryorder": "array", "categoryarray": numbers(axis.ticks)}
    if axis.scale == "log":
        made["type"] = "log"
    if axis.ticks:
        made |= {"tickvals": list(axis.ticks), "ticktext": list(axis.ticks.values())}
    if axis.range is not None:
        made["range"] = numbers(axis.range)
    return made


def _ends(panel: Panel) -> list[dict[str, Any]]:
    """Names to the right, each at the height at which its line ends; none if they do not fit."""
    named = [one for one in panel.series if not one.is_behind and (one.style is not None or one.is_reference)]
    if panel.y.range is None or not 0 < len(named) <= MOST_ENDS:
        return []
    if max(len(short(one.name)) for one in named) > LONGEST_END:
        return []
    low, high = panel.y.range
    last = [pd.Series(list(one.y), dtype=float).dropna() for one in named]
    wanted_N = np.array([(drawable(y).iloc[-1] - low) / (high - low) if len(y) else 0.0 for y in last]).clip(0, 1)
    return [
        {
            "text": short(one.name) if one.style is None else f"{GLYPHS[one.style['marker']]} {short(one.name)}",
            "xref": "paper", "yref": "paper", "x": 1.01, "y": round(float(height), 3),
            "xanchor": "left", "yanchor": "middle", "showarrow": False,
            "font": {"size": 12, "color": GREY if one.style is None else one.style["color"]},
        }
        for one, height in zip(named, spread(wanted_N, 1 / MOST_ENDS, 1), strict=True)
    ]  # fmt: skip


def _gone(panel: Panel) -> int:
    """How many points of lines are outside the range of y."""
    if panel.y.range is None:
        return 0
    gone = 0
    for one in panel.series:
        if one.is_behind or one.is_reference:
            continue
        points = pd.DataFrame({"x": list(one.x), "y": list(one.y)}, dtype=float).dropna()
        gone += int((~drawable(points["y"][points["x"] >= panel.since]).between(*panel.y.range)).sum())
    return gone


def _map(heat: Heat) -> dict[str, Any]:
    """A heat map; the tooltip of a cell names its row and column."""
    cells, rows = heat.texts(), [short(name) for name in heat.rows]
    said = [
        [f"{name}, {column}: {cell or 'n/a'}" for column, cell in zip(heat.columns, mine, strict=True)]
        for name, mine in zip(rows, cells, strict=True)
    ]
    (low, high), colours = heat.ends(), heat.colours()
    trace = {
        "type": "heatmap", "z": [numbers(row) for row in heat.values_RC], "text": cells, "hovertext": said,
        "zmin": low, "zmax": high, "showscale": False, "xgap": 1, "ygap": 1, "textfont": {"color": INK},
        "colorscale": [[at / (len(colours) - 1), colour] for at, colour in enumerate(colours)],
    }  # fmt: skip
    bare = {"showgrid": False, "zeroline": False}
    layout = {
        "height": 130 + 26 * len(rows),
        "xaxis": bare
        | {"title": {"text": heat.below}, "tickvals": [*range(len(heat.columns))], "ticktext": [*heat.columns]},
        "yaxis": bare | {"tickvals": [*range(len(rows))], "ticktext": rows, "autorange": "reversed"},
    }
    return {"traces": [trace], "layout": layout, "kept": None}
