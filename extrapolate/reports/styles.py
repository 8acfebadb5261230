"""How the pictures of a report draw each model, which models they name, and the range of their axes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from extrapolate.names import AS_TRAINED

Style = Mapping[str, Any]
# After Okabe and Ito, a little darker or lighter so that each is visible on white and on dark grey. Their yellow and
# black are not, and are left out.
COLOURS = ("#0068A8", "#C94F00", "#008F68", "#CC79A7", "#DD9800", "#4AADE8")
GREY = "#8A8F98"  # of models that are not named, and of controls
MARKERS = "os^Dv<>p*"
GLYPHS = dict(zip(MARKERS, "●■▲◆▼◀▶⬟★", strict=True))  # the same in text
MOST_MARKERS = 8  # of a line
DASHES = (":", "--", "-.", (0, (3, 1, 1, 1, 1, 1)))  # of what is applied at inference
MANY = 12  # lines: of more than that, some are grey
MOST_NAMED = 20
CROWD = 60  # grey lines: more of them are paler, so that their density shows
FURTHEST = 1e9  # nats: larger or infinite values are drawn as this
REACH = 1.0  # nats beyond the quartiles that an axis always shows
MOST_BANDS = 8  # more would hide each other


def styles(rows: pd.DataFrame, order: Sequence[str]) -> dict[str, Style]:
    """How every picture of a report draws each model, as keyword arguments of matplotlib.

    A run has one colour; once all are used, they repeat with the next marker. An extension has its own dashes and
    marker. `rows` are those of all protocols, `order` the models in the order of the tables.
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
    """The models that have rows, in the order of the styles."""
    there = set(rows["model"])
    return [model for model in style if model in there]


def named(style: Mapping[str, Style], rows: pd.DataFrame) -> list[str]:
    """The models that a picture of these rows names and colours, in the order of the styles; the rest are grey.

    Up to MANY models are all named. Of more, MOST_NAMED are: the first, which is the answer's reference, the best at
    every length, and then models as trained, those with the lowest loss at the longest length first. rows: `model`,
    `extension`, `factor`, `loss`.
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
    """The values as numbers, clipped to FURTHEST."""
    return values.astype(float).clip(-FURTHEST, FURTHEST)


def limits(*values: "pd.Series[Any]", around: pd.DataFrame | None = None) -> tuple[float, float] | None:
    """The range of an axis that shows all of these series. None if none has a value.

    Outliers of each series are left out: values beyond Tukey's outer fences, which are three interquartile ranges (and
    at least REACH) outside the quartiles. A reference that is a series of its own is therefore always shown.
    around: the ends of seeds and bands around the values of the first series, by its index, in any number of columns.
    The axis includes them for each value that it shows.
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
    """The least and the greatest value that is no outlier."""
    numbers = _finite(values)
    if numbers.empty:
        return None
    first, third = np.quantile(numbers, [0.25, 0.75])
    reach = max(3 * (third - first), REACH)
    inside = numbers[numbers.between(first - reach, third + reach)]
    return float(inside.min()), float(inside.max())


def _finite(values: "pd.Series[Any]") -> "pd.Series[float]":
    """The values nearer to zero than FURTHEST."""
    numbers = drawable(values).dropna()
    return numbers[numbers.abs() < FURTHEST]


def spread(wanted_N: np.ndarray, gap: float, room: float) -> np.ndarray:
    """The places nearest to those wanted (least squares), in the same order, `gap` apart, between 0 and `room`.

    If they do not fit, the room is extended.
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
