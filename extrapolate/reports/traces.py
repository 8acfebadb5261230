"""What charts of the HTML page are made of: traces and layouts in plotly's schema, as JSON has it.

Names stand in them as they are. assets/charts.js shows every text as text, and gives the colours of axes and grids.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from extrapolate.reports.escaping import LONGEST, one_line
from extrapolate.reports.styles import CROWD, DASHES, FURTHEST, GREY, MARKERS, MOST_MARKERS, Style, drawable, limits

Trace = dict[str, Any]
DIGITS = 4  # after the point
EDGE = 0.7  # the width of a band's
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


def numbers(values: Iterable[Any], digits: int = DIGITS) -> list[float | None]:
    """The values rounded, for JSON: None where there is none, or it is infinite."""
    found = drawable(pd.Series(list(values), dtype=float))
    return [None if value != value or abs(value) >= FURTHEST else _short(round(value, digits)) for value in found]


def _short(value: float) -> float:
    """4 rather than 4.0, which JSON would write."""
    return int(value) if value.is_integer() else value


def shown(name: str) -> str:
    """A name in a chart: in one line, and not too long."""
    name = one_line(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def curve(name: str, x: Iterable[Any], y: Iterable[Any], style: Style | None) -> Trace:
    """A model's line. Without a style it is grey, behind the others, and named where the reader points at it.

    Of a long line, some points have its marker, which tells apart models of one colour.
    """
    trace: Trace = {"type": "scatter", "name": shown(name), "x": numbers(x), "y": numbers(y), "mode": "lines"}
    if style is None:
        return trace | {"line": {"color": GREY, "width": 1}, "opacity": 0.4, "showlegend": False}
    marker = {"symbol": _SYMBOLS[style["marker"]], "size": 7, "maxdisplayed": MOST_MARKERS}
    line = {"color": style["color"], "dash": _DASH[style["linestyle"]], "width": 2}
    return trace | {"mode": "lines+markers", "line": line, "marker": marker, "legendgroup": name}


def compact(trace: Trace) -> Trace:
    """The trace with the first x and the distance in place of all, where they are equally far apart."""
    x = trace["x"]
    steps = {round(after - before, DIGITS) for before, after in pairwise(x)}
    if len(steps) != 1:
        return trace
    return {name: value for name, value in trace.items() if name != "x"} | {"x0": x[0], "dx": steps.pop()}


def thin(name: str, x: Iterable[Any], y: Iterable[Any], style: Style) -> Trace:
    """A line behind a model's own, which comes and goes with it: a seed."""
    return {
        "type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(y), "legendgroup": name, "showlegend": False,
        "name": shown(name), "line": {"color": style["color"], "width": 0.8}, "opacity": 0.6, "hoverinfo": "skip",
    }  # fmt: skip


def band(name: str, x: Sequence[Any], low: Iterable[Any], high: Iterable[Any], style: Style) -> list[Trace]:
    """The room between two lines, which comes and goes with a model's line. Where an end is missing, there is none."""
    ends = pd.DataFrame({"x": list(x), "low": numbers(low), "high": numbers(high)}).dropna()
    common = {
        "type": "scatter", "mode": "lines", "legendgroup": name, "showlegend": False, "hoverinfo": "skip",
        "line": {"color": style["color"], "width": EDGE, "dash": "dot"}, "x": numbers(ends["x"]),
    }  # fmt: skip
    inside = f"rgba({', '.join(str(int(style['color'][at : at + 2], 16)) for at in (1, 3, 5))}, 0.1)"
    return [
        common | {"y": numbers(ends["low"])},
        common | {"y": numbers(ends["high"]), "fill": "tonexty", "fillcolor": inside},
    ]


def arranged(lines: Sequence[Trace]) -> list[Trace]:
    """The lines in front of bands, and both in front of grey lines, which are paler where they are a crowd."""
    grey = [line for line in lines if line.get("line", {}).get("color") == GREY]
    pale = {"opacity": 0.15} if len(grey) > CROWD else {}
    behind = [line | pale if "opacity" in line else line for line in grey]
    rest = [line for line in lines if line.get("line", {}).get("color") != GREY]
    return [*behind, *sorted(rest, key=lambda line: line.get("line", {}).get("width") != EDGE)]


def reference(name: str, x: Iterable[Any], y: Iterable[Any]) -> Trace:
    """A line that is no model's, grey and dashed."""
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": numbers(x), "y": numbers(y),
        "line": {"color": GREY, "dash": "dash", "width": 1.5},
    }  # fmt: skip


def layout(
    x: str, y: str, values: "pd.Series[Any]", *shown: "pd.Series[Any]", around: pd.DataFrame | None = None, **more: Any
) -> dict[str, Any]:
    """The axes' titles, and a range of the losses in which what diverged does not flatten the rest.

    What leaves it is counted in the chart, which shows all after a double click. shown: other values that the range
    has too, such as a reference's. around: the seeds and bands of the values, see `styles.limits`. more: what else the
    layout has.
    """
    made: dict[str, Any] = {
        "xaxis": {"title": {"text": x}} | more.pop("xaxis", {}),
        "yaxis": {"title": {"text": y}},
        "hovermode": "closest",
        **more,
    }
    if (ends := limits(values, *shown, around=around)) is not None:
        made["yaxis"]["range"] = numbers(ends)
        gone = int((~drawable(values).dropna().between(*ends)).sum())
        if gone:
            made["annotations"] = [note(f"Off the scale: {gone} points. Double click: all.")]
    return made


def note(text: str) -> dict[str, Any]:
    """A line of small text above the chart, at its left."""
    return {
        "text": text, "xref": "paper", "yref": "paper", "x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom",
        "showarrow": False, "font": {"size": 11},
    }  # fmt: skip


def by_factor(factors: Sequence[float], seq_len: int) -> Mapping[str, Any]:
    """The axis of evaluation lengths: 1x, 2x, 4x."""
    return {
        "title": {"text": f"evaluation length / training length (L = {seq_len} tokens)"},
        "type": "log", "tickvals": list(factors), "ticktext": [f"{factor:g}x" for factor in factors],
    }  # fmt: skip
