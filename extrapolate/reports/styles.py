"""How all pictures of a report draw each model, which models they name, and how far their axes reach."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from extrapolate.names import AS_TRAINED

Style = Mapping[str, Any]
# After Okabe and Ito, each a little darker or lighter: to be seen on white and on dark grey. Without their yellow and
# black, which one of the two swallows.
COLOURS = ("#0068A8", "#C94F00", "#008F68", "#CC79A7", "#DD9800", "#4AADE8")
GREY = "#8A8F98"  # of models that are not named, and of controls
MARKERS = "os^Dv<>p*"
GLYPHS = dict(zip(MARKERS, "●■▲◆▼◀▶⬟★", strict=True))  # the same in text
MOST_MARKERS = 8  # of a line
DASHES = (":", "--", "-.", (0, (3, 1, 1, 1, 1, 1)))  # of what is applied at inference
MANY = 12  # lines: of more than that, some are grey
MOST_NAMED = 20
CROWD = 60  # grey lines: of more, how dense they are is seen, not each
FURTHEST = 1e9  # nats: what is further from zero, or infinite, counts as this far
REACH = 1.0  # nats beyond the quartiles that an axis shows in any case
MOST_BANDS = 8  # of more, one hides the other


def styles(rows: pd.DataFrame, order: Sequence[str]) -> dict[str, Style]:
    """How every picture of a report draws each model, by matplotlib's words.

    A run has one colour; when all colours are used, they come again with another marker. An extension has one kind of
    dashes, and moves the marker on. `rows` are those of all protocols, `order` the models in the order of the tables.
    """
    first = rows.drop_duplicates("model").set_index("model").loc[list(order)]
    runs = {run: at for at, run in enumerate(dict.fromkeys(first["run"]))}
    extensions = {
        name: at for at, name in enumerate(dict.fromkeys(first["extension"][first["extension"] != AS_TRAINED]))
    }
    found: dict[str, Style] = {}
    for model, run, extension in zip(order, first["run"], first["extension"], strict=True):
        again, colour = divmod(runs[run], len(COLOURS))
        at = extensions.get(extension, -1)
        found[model] = {
            "color": COLOURS[colour],
            "linestyle": "-" if at < 0 else DASHES[at % len(DASHES)],
            "marker": MARKERS[(again + at + 1) % len(MARKERS)],
        }
    return found


def drawn(style: Mapping[str, Style], rows: pd.DataFrame) -> list[str]:
    """The models that rows are of, in the order of the styles."""
    there = set(rows["model"])
    return [model for model in style if model in there]


def named(style: Mapping[str, Style], rows: pd.DataFrame) -> list[str]:
    """The models that a picture of these rows names and colours, in the order of the styles; the rest are grey.

    All of them, up to MANY. Of more, the first, with which the answer compares the others, the best at every length
    and the plain ones, MOST_NAMED together: of the plain ones those that are lowest at the longest length. rows:
    `model`, `extension`, `factor`, `loss`.
    """
    models = drawn(style, rows)
    if len(models) <= MANY:
        return models
    losses = rows.groupby(["model", "factor"])["loss"].mean().unstack().reindex(models)
    best = [str(losses[factor].idxmin()) for factor in losses if losses[factor].notna().any()]
    plain = set(rows[rows["extension"] == AS_TRAINED]["model"])
    lowest = [str(model) for model in losses.iloc[:, -1].sort_values().index if model in plain]
    kept = set(list(dict.fromkeys([models[0], *best, *lowest]))[:MOST_NAMED])
    return [model for model in models if model in kept]


def drawable(values: "pd.Series[Any]") -> "pd.Series[float]":
    """The values as numbers; what is infinite or too far away is FURTHEST away."""
    return values.astype(float).clip(-FURTHEST, FURTHEST)


def limits(*values: "pd.Series[Any]", around: pd.DataFrame | None = None) -> tuple[float, float] | None:
    """From where to where an axis shows all of these series. None if none has a value.

    Of each series, a few values that are far from its rest are left out: beyond Tukey's outer fences, three times the
    distance of the quartiles beyond them, and REACH at least. So a reference, as a series of its own, is always shown.
    around: how far seeds and bands reach around the values of the first series, by its index, in any number of columns.
    The axis holds them whole around each value that it shows.
    """
    ends = [end for one in values if (found := _inside(one)) is not None for end in found]
    if around is not None and (found := _inside(values[0])) is not None:
        beside = around.reindex(values[0].index)[drawable(values[0]).between(*found)]
        ends += _finite(pd.Series(beside.to_numpy(float).ravel())).tolist()
    if not ends:
        return None
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low) or max(0.05, abs(high) * 1e-6)
    return low - margin, high + margin


def _inside(values: "pd.Series[Any]") -> tuple[float, float] | None:
    """The least and the greatest of the values that are not far from the rest."""
    numbers = _finite(values)
    if numbers.empty:
        return None
    first, third = np.quantile(numbers, [0.25, 0.75])
    reach = max(3 * (third - first), REACH)
    inside = numbers[numbers.between(first - reach, third + reach)]
    return float(inside.min()), float(inside.max())


def _finite(values: "pd.Series[Any]") -> "pd.Series[float]":
    """Those that can be drawn where they are."""
    numbers = drawable(values).dropna()
    return numbers[numbers.abs() < FURTHEST]


def spread(wanted_N: np.ndarray, gap: float, room: float) -> np.ndarray:
    """The places nearest to those wanted (least squares) that are `gap` apart and within 0 and `room`, in one order.

    If they do not all fit, the room ends later.
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
