"""Draws what encodings do with positions, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from extrapolate import files
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.inspection.views import View, scores, views
from extrapolate.model.model import Model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POSITIONS = 100  # to show of each encoding
CURVES = 5  # dimensions to draw as curves
FARTHEST = 16  # the longest distance, in units of L
MOST = 8  # columns of a picture
TITLE = 44  # characters in a line
# The suffixes of pictures, with the metadata to leave out so that equal pictures are equal files.
SUFFIXES = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}
# Okabe and Ito's, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


@dataclass(frozen=True)
class Look:
    """A model to draw. seq_len: L in tokens. plan, extended: the plan for a length, and that of an extension."""

    model: Model
    title: str
    seq_len: int
    plan: Callable[[int], Plan] = lambda _: PLAIN
    extended: Callable[[int], Plan] | None = None


def check_file(path: Path) -> None:
    """Raises UserError if the file's suffix is not that of a picture."""
    if path.suffix.lower() not in SUFFIXES:
        *others, last = SUFFIXES
        raise UserError(f"{path}: a picture's name ends in {', '.join(others)} or {last}")


def save(figure: "Figure", path: Path) -> None:
    """Writes a picture atomically. Raises UserError if its suffix is not that of a picture."""
    check_file(path)
    kind = path.suffix.lower()
    undated: dict[str, Any] = {SUFFIXES[kind]: None}
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, lambda to: figure.savefig(to, format=kind[1:], dpi=80, metadata=undated))


def picture(looks: Sequence[Look], extension: str = "") -> "Figure":
    """Draws a column for each place where position enters each model.

    From top to bottom: every dimension at every position; some dimensions as curves; the change between positions; and
    the scores of the last token of a window by distance. extension: the name of the extension of `Look.extended`.
    Raises UserError if there are too many columns.
    """
    from matplotlib.figure import Figure

    columns: list[tuple[Look, View | None]] = []
    for look in looks:
        shown = min(POSITIONS, look.model.encoding.max_length or POSITIONS)
        columns += [(look, view) for view in views(look.model, shown)] or [(look, None)]
    if len(columns) > MOST:
        raise UserError(f"a picture has at most {MOST} columns, and these encodings need {len(columns)}: name fewer")
    figure = Figure(facecolor="white", layout="constrained")
    if len(columns) == 1:
        figure.set_size_inches(8.0, 5.6)
        panels = figure.subplots(2, 2).reshape(4, 1)
    else:
        figure.set_size_inches(0.4 + 3.7 * len(columns), 10.2)
        panels = figure.subplots(4, len(columns))
    for at, (look, view) in enumerate(columns):
        title = fill(look.title, TITLE)
        panels[0, at].set_title(title if view is None else f"{title}\n{view.place}", fontsize=11, parse_math=False)
        if view is None:
            for panel in panels[:3, at]:
                panel.axis("off")
            panels[0, at].text(0.5, 0.5, "no hook reads positions", ha="center", va="center")
        else:
            _heat(figure, panels[0, at], view)
            _curves(panels[1, at], view)
            _changes(panels[2, at], view)
        _scores(panels[3, at], look, extension)
    return figure


def _heat(figure: "Figure", panel: "Axes", view: View) -> None:
    values_CT = view.values_TC.T.numpy()
    most = float(np.abs(values_CT).max()) or 1.0
    drawn = panel.imshow(values_CT, aspect="auto", cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
    places = sorted({round(place) for place in np.linspace(0, len(view.dimensions) - 1, 5)})
    panel.set_yticks(places, [str(view.dimensions[place]) for place in places])
    panel.set_xlabel("position")
    panel.set_ylabel(view.kind)
    figure.colorbar(drawn, ax=panel, shrink=0.9, pad=0.02)


def _curves(panel: "Axes", view: View) -> None:
    places = sorted({round(place) for place in np.linspace(0, len(view.dimensions) - 1, CURVES)})
    for place, colour in zip(places, COLOURS, strict=False):
        label = f"{'' if place else f'{view.kind} '}{view.dimensions[place]}"
        panel.plot(view.values_TC[:, place].numpy(), color=colour, label=label, lw=1.4)
    _finish(panel, "position", "value")


def _changes(panel: "Axes", view: View) -> None:
    from matplotlib.ticker import MaxNLocator

    last = len(view.values_TC) - 1
    pairs = [(0, (last + 1) // 2), ((last + 1) // 2, last), (0, last)]
    for (start, end), colour, marker in zip(pairs, COLOURS, "os^", strict=False):
        change_C = (view.values_TC[end] - view.values_TC[start]).numpy()
        panel.plot(view.dimensions, change_C, color=colour, marker=marker, ms=2.5, lw=0.9, label=f"{start} to {end}")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(panel, view.kind, "change from position")


def _scores(panel: "Axes", look: Look, extension: str) -> None:
    length, farthest = look.seq_len, FARTHEST * look.seq_len
    lines = [
        (f"window of {FARTHEST} L", scores(look.model, farthest, look.plan(farthest)), COLOURS[0], "-"),
        ("window of L", scores(look.model, length, look.plan(length)), COLOURS[6], "--"),
    ]
    if look.extended is not None:
        extended = scores(look.model, farthest, look.extended(farthest))
        lines.insert(1, (f"{FARTHEST} L, {extension}", extended, COLOURS[1], "-"))
    for label, found_HS, colour, dashes in lines:
        if found_HS is None:
            panel.plot([], [], color=colour, ls=dashes, label=f"{label}: n/a")
            continue
        distance_S = np.arange(found_HS.shape[1])
        heads = _different(found_HS)
        for scores_S in heads if len(heads) > 1 else []:
            panel.plot(distance_S, scores_S.numpy(), color=colour, ls=dashes, lw=0.6, alpha=0.5)
        panel.plot(distance_S, found_HS.mean(dim=0).numpy(), color=colour, ls=dashes, lw=1.5, label=label)
    panel.set_xscale("symlog", linthresh=1, linscale=0.4)
    panel.set_xlim(0, farthest)
    for place in (length, farthest):
        panel.axvline(place, color="#888888", lw=1, ls=":")
    panel.set_xticks([0, 1, 10, length, farthest], ["0", "1", "10", "L", f"{FARTHEST} L"], minor=False)
    panel.set_xticks([], minor=True)
    _finish(panel, f"distance, tokens (L = {length})", "score of a constant query", columns=2)


def _different(found_HS: Tensor) -> list[Tensor]:
    """The scores of heads, without those that repeat an earlier one's."""
    kept: list[Tensor] = []
    for scores_S in found_HS:
        if not any(scores_S.allclose(other, rtol=1e-4, atol=1e-4, equal_nan=True) for other in kept):
            kept.append(scores_S)
    return kept


def _finish(panel: "Axes", below: str, beside: str, columns: int = 5) -> None:
    panel.set_xlabel(below)
    panel.set_ylabel(beside)
    panel.grid(alpha=0.3)
    legend = panel.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 0.98), ncols=columns, fontsize=8, frameon=False, handlelength=1.2,
        columnspacing=0.9, borderpad=0.2,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
