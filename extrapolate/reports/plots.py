"""What all pictures of a report share: how each model is drawn, and how a picture is begun and saved. By matplotlib."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import files
from extrapolate.evaluation.names import AS_TRAINED
from extrapolate.reports.names import label

Style = Mapping[str, Any]
FURTHEST = 1e9  # nats: what is further from zero, or infinite, would leave no room for the rest
MOST_PANELS = 16
IN_COLUMN = 18  # lines of a legend
COLOURS = (  # matplotlib's own ten, and ten of its map tab20b
    "C0", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9",
    "#393b79", "#637939", "#8c6d31", "#843c39", "#7b4173", "#9c9ede", "#b5cf6b", "#e7ba52", "#e7969c", "#de9ed6",
)  # fmt: skip
DASHES = (":", "--", "-.", (0, (3, 1, 1, 1, 1, 1)))  # of what is applied at inference


def styles(rows: pd.DataFrame, order: Sequence[str]) -> dict[str, Style]:
    """How every picture of a report draws each model: a colour for each run, a marker and dashes for each extension.

    `rows` are those of all protocols, `order` the models in the order of legends.
    """
    first = rows.drop_duplicates("model").set_index("model").loc[list(order)]
    runs = list(dict.fromkeys(first["run"]))
    extensions = [name for name in dict.fromkeys(first["extension"]) if name != AS_TRAINED]
    found: dict[str, Style] = {}
    for model, run, extension in zip(order, first["run"], first["extension"], strict=True):
        plain = extension == AS_TRAINED
        at = 0 if plain else extensions.index(extension)
        found[model] = {
            "color": COLOURS[runs.index(run) % len(COLOURS)],
            "linestyle": "-" if plain else DASHES[at % len(DASHES)],
            "marker": "o" if plain else "s^Dv<>p*"[at % 8],
        }
    return found


def drawn(style: Mapping[str, Style], rows: pd.DataFrame) -> list[str]:
    """The models that rows are of, in the order of the styles."""
    return [model for model in style if model in set(rows["model"])]


def drawable(values: "pd.Series[Any]") -> "pd.Series[float]":
    """The values as numbers, missing where they are infinite or too far away."""
    numbers = values.astype(float)
    return numbers.where(numbers.abs() <= FURTHEST)


def curve(panel: Any, x: Any, y: "pd.Series[Any]", model: str, style: Style) -> None:
    """Draws one model's line. Its name in the legend says where a part of it cannot be drawn."""
    shown = drawable(y)
    beyond = bool((y.notna() & shown.isna()).any())
    panel.plot(x, shown, label=label(model) + (" (partly off the scale)" if beyond else ""), **style)


def seeds_behind(panel: Any, rows: pd.DataFrame, style: Style, against: str = "factor") -> None:
    """Draws one model's losses against a column, a thin line for each of its runs; nothing where it has one."""
    if rows["run"].nunique() < 2:
        return
    for _, mine in rows.sort_values(against).groupby("run"):
        panel.plot(mine[against], drawable(mine["loss"]), color=style["color"], linewidth=0.6, alpha=0.6, zorder=1.5)


def legend(panel: Any) -> None:
    """Says which line is which, in the picture: all of them, or the first and the last, where they are too many."""
    _legend(panel, panel).set_in_layout(False)  # a tall one must not take the room of the picture


def legend_beside(figure: Any, panel: Any) -> None:
    """The same to the right of all panels, where no line can lie under it."""
    _legend(figure, panel, loc="outside right upper")


def _legend(where: Any, panel: Any, **place: Any) -> Any:
    handles, labels = panel.get_legend_handles_labels()
    more = len(handles) - 2 * IN_COLUMN
    if more > 0:
        handles, labels = [*handles[: -more - 1], handles[-1]], [*labels[: -more - 1], labels[-1]]
    columns = 1 if len(handles) <= IN_COLUMN else 2
    made = where.legend(handles, labels, fontsize="small", ncols=columns, **place)
    if more > 0:
        made.set_title(f"and {more} more models, see the table")
    return made


def line(style: Style) -> dict[str, Any]:
    """Without the marker, where there are too many points for one at each."""
    return {name: value for name, value in style.items() if name != "marker"}


def tokens_below(panel: Any) -> None:
    """Says that the axis below a panel counts training tokens: 200k, 1.5M."""
    from matplotlib.ticker import EngFormatter

    panel.set_xlabel("training tokens")
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def panels(count: int, one_scale: bool = True) -> tuple[Any, Any]:
    """A figure and its axes: so many panels in a row, from bottom to top on one scale, or each on its own."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "extrapolate"  # the same rows give the same file
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, count, figsize=(7 if count == 1 else 3.2 * count, 4.2), layout="constrained", squeeze=False, sharey=one_scale
    )
    for panel in axes[0]:
        panel.grid(alpha=0.3)
    return figure, axes[0]


def save(figure: Any, path: Path) -> None:
    """Writes a figure atomically, and closes it. The file's suffix decides its format."""
    import matplotlib.pyplot as plt

    def write(to: Path) -> None:
        with warnings.catch_warnings():  # a name in letters that the font lacks: they are drawn as boxes
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(to, format=path.suffix[1:], dpi=150, metadata=_undated(path))

    try:
        files.write_atomically(path, write)
    finally:
        plt.close(figure)


def _undated(path: Path) -> dict[str, None] | None:
    return {"Date": None} if path.suffix == ".svg" else None
