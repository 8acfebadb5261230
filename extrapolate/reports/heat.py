"""Numbers by row and by column in colours, each written into its cell: as a picture, and as a chart of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from extrapolate.reports import plots, traces
from extrapolate.reports.chart import Chart
from extrapolate.reports.escaping import label

MOST_ROWS = 40
BETTER, NEITHER, WORSE = "#6BAEDD", "#F4F4F2", "#F0925A"  # black can be read on all of them
INK = "#101214"
CELL = (0.75, 0.24)  # inches


@dataclass(frozen=True)
class Heat:
    """rows: their names. columns: theirs. values_RC: NaN where there is nothing. digits: that a cell has.

    most: the value in the strongest colour. signed: whether -most is strong too, in another colour.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    values_RC: np.ndarray
    most: float
    signed: bool
    digits: int = 3

    def texts(self) -> list[list[str]]:
        """What the cells say."""
        sign = "+" if self.signed else ""
        return [["" if value != value else f"{value:{sign}.{self.digits}f}" for value in row] for row in self.values_RC]

    def colours(self) -> list[str]:
        """From the least value to the most."""
        return [BETTER, NEITHER, WORSE] if self.signed else [NEITHER, BETTER]


def of_table(table: pd.DataFrame, rows: Sequence[str], most: float | None = None) -> Heat:
    """A table's numbers, with names for its rows. Differences, without `most`, are signed.

    A difference that is far above the others does not make them pale: the strongest colour is that of the ninth
    tenth.
    """
    values_RC = table.to_numpy(float)
    sizes = np.abs(values_RC[np.isfinite(values_RC)])
    found = most if most is not None else max(0.01, float(np.quantile(sizes, 0.9))) if len(sizes) else 1.0
    return Heat(list(rows), [str(name) for name in table.columns], values_RC, found, signed=most is None)


def draw(heat: Heat, title: str, path: Path) -> None:
    """Draws it with matplotlib. The file's suffix decides its format."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    width, height = CELL[0] * len(heat.columns), CELL[1] * len(heat.rows)
    names = [label(name) for name in heat.rows]
    left, above, below = 0.3 + 0.068 * max(map(len, names)), 0.4, 0.5
    whole = (left + max(width, 3.0) + 0.2, above + height + below)
    figure = Figure(figsize=whole)
    panel = figure.add_axes((left / whole[0], below / whole[1], width / whole[0], height / whole[1]))
    colours = LinearSegmentedColormap.from_list("", heat.colours())
    low = -heat.most if heat.signed else 0.0
    panel.imshow(np.clip(heat.values_RC, low, heat.most), cmap=colours, vmin=low, vmax=heat.most, aspect="auto")
    for row, texts in enumerate(heat.texts()):
        for column, text in enumerate(texts):
            panel.text(column, row, text, ha="center", va="center", fontsize=8, color=INK)
    panel.set_xticks(range(len(heat.columns)), heat.columns, fontsize=plots.SMALL)
    panel.set_yticks(range(len(names)), names, fontsize=plots.SMALL)
    panel.set_xlabel("evaluation length / training length", fontsize=plots.SMALL)
    panel.tick_params(length=0)
    figure.text(0.1 / whole[0], 1 - 0.1 / whole[1], title, va="top")
    plots.save(figure, path)


def chart(heat: Heat, text: str, file: str) -> Chart:
    """The same as a chart."""
    shown = heat.texts()
    rows = [traces.shown(name) for name in heat.rows]
    said = [
        [f"{name}, {column}: {cell or 'n/a'}" for column, cell in zip(heat.columns, cells, strict=True)]
        for name, cells in zip(rows, shown, strict=True)
    ]
    steps = len(heat.colours()) - 1
    trace = {
        "type": "heatmap", "z": [traces.numbers(row) for row in heat.values_RC], "text": shown, "hovertext": said,
        "zmin": -heat.most if heat.signed else 0, "zmax": heat.most, "showscale": False, "xgap": 1, "ygap": 1,
        "textfont": {"color": INK},
        "colorscale": [[at / steps, colour] for at, colour in enumerate(heat.colours())],
    }  # fmt: skip
    bare = {"showgrid": False, "zeroline": False}
    layout = {
        "height": 110 + 26 * len(rows),
        "xaxis": bare | {"tickvals": list(range(len(heat.columns))), "ticktext": list(heat.columns)},
        "yaxis": bare | {"tickvals": list(range(len(rows))), "ticktext": rows, "autorange": "reversed"},
    }
    return Chart(text, file, [trace], layout)
