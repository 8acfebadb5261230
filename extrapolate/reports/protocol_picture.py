"""Draws the windows of a protocol on one short document, from the protocol's own layout."""

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from extrapolate.evaluation.protocols.base import Windows, protocols
from extrapolate.reports.plots import own_settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

L = 8
FACTORS = (1, 2, 4)
CONTEXT, SCORED = "#c3dcf2", "#1c5a9e"
CONTROL_CONTEXT, CONTROL_SCORED = "#dcdcdc", "#5a5a5a"
LANE, GAP = 0.16, 0.16  # inches: a bar's height, and the gap between rows


def bars_of(groups: tuple[Windows, ...]) -> list[tuple[int, int, list[int]]]:
    """Every window in order: its first input, its length, and the inputs whose next token is scored."""
    bars = []
    for group in groups:
        for start, targets in zip(group.start_W, group.targets(), strict=True):
            bars.append((int(start), group.length, [int(place) - 1 for _, place in targets]))
    return sorted(bars)


def context_of(bars: list[tuple[int, int, list[int]]]) -> str:
    """The number of windows, and how many inputs their scored tokens have."""
    inputs = [place - start + 1 for start, _, scored in bars for place in scored]
    windows = f"{len(bars)} window{'s' if len(bars) > 1 else ''}"
    lengths = {length for _, length, _ in bars}
    of = f"{'up to ' if len(lengths) > 1 else ''}{max(lengths)}"
    return f"{windows} of {of}: {min(inputs)} to {max(inputs)}, mean {np.mean(inputs):g}"


def drawn(axes: Any, name: str, bars: list[tuple[int, int, list[int]]], top: float, right: float) -> float:
    """Draws one row below `top` (inches from the top), with its text from `right` on, and returns where it ends."""
    pale, strong = (CONTROL_CONTEXT, CONTROL_SCORED) if name == "control" else (CONTEXT, SCORED)
    for lane, (start, length, scored) in enumerate(bars):
        box = {"bottom": top + lane * LANE, "height": LANE * 0.84, "align": "edge"}
        axes.bar(start, width=length, color=pale, **box)
        axes.bar(scored, width=1, color=strong, edgecolor="white", linewidth=0.6, **box)
        axes.bar(start, width=length, color="none", edgecolor=strong, linewidth=0.8, **box)
    end = top + len(bars) * LANE
    middle = (top + end) / 2
    axes.text(-0.8, middle, name, ha="right", va="center", fontsize=10, weight="bold")
    axes.text(right, middle, context_of(bars), va="center", fontsize=9)
    return end


def picture(protocol: str) -> "Figure":
    """The windows of a protocol on one short document: a row for each factor, and one for the control."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    drawn_one = protocols[protocol]()
    tokens = drawn_one.drawn_tokens
    layout = drawn_one.layout(np.array([tokens]), L, [factor * L for factor in FACTORS], 1000)
    rows = {f"{factor}x": bars_of(layout.rows[factor * L]) for factor in FACTORS}
    rows["control"] = bars_of(layout.control)
    depth = math.fsum(len(bars) * LANE + GAP for bars in rows.values())  # the same in every version of Python
    above, below = 0.62, 0.5
    height = above + depth + below
    figure = Figure(figsize=(9.6, height), facecolor="white")
    axes = figure.add_axes((0.075, below / height, 0.9, depth / height))
    axes.set_xlim(0, 64)
    axes.set_ylim(depth, 0)
    top = GAP / 2
    for name, bars in rows.items():
        top = drawn(axes, name, bars, top, tokens + 1) + GAP
    axes.set_yticks([])
    axes.spines[["left", "right", "top", "bottom"]].set_visible(False)
    places = range(0, tokens, L)
    axes.set_xticks(places, ["0", "L", *(f"{place // L}L" for place in places[2:])])
    axes.vlines(list(places), 0, depth, color="#bbbbbb", linewidth=0.6, zorder=0)
    axes.text(0, depth + 0.4, f"input token of a document of {tokens} tokens, L = {L}", fontsize=9)
    axes.text(tokens + 1, -0.08, "windows: inputs up to a scored token", fontsize=9, style="italic")
    figure.text(0.075, 1 - 0.2 / height, f"{protocol}", fontsize=12, weight="bold", va="center")
    handles = [Patch(color=colour) for colour in (SCORED, CONTEXT, CONTROL_SCORED, CONTROL_CONTEXT)]
    labels = ["next token is scored", "context only", "the same, control", "context only, control"]
    figure.legend(
        handles, labels, ncols=4, frameon=False, fontsize=9, loc="center left",
        bbox_to_anchor=(0.22, 1 - 0.2 / height), handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip
    return figure


def svg(protocol: str) -> str:
    """The picture as SVG, with the same bytes each time."""
    written = io.StringIO()
    with own_settings({"svg.fonttype": "none", "font.family": "DejaVu Sans"}):
        picture(protocol).savefig(written, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    return written.getvalue()
