"""Plots, by matplotlib, to files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import files
from extrapolate.evaluation.names import PLAIN_NAME
from extrapolate.report.positions import Failure

Style = Mapping[str, Any]
DASHES = (":", "--", "-.", (0, (3, 1, 1, 1, 1, 1)))  # of what is applied at inference


def styles(rows: pd.DataFrame, order: Sequence[str]) -> dict[str, Style]:
    """How every picture of a report draws each model: a colour for each run, a marker and dashes for each extension.

    `rows` are those of all protocols, `order` the models in the order of legends.
    """
    first = rows.drop_duplicates("model").set_index("model").loc[list(order)]
    runs = list(dict.fromkeys(first["run"]))
    extensions = [name for name in dict.fromkeys(first["extension"]) if name != PLAIN_NAME]
    found: dict[str, Style] = {}
    for model, run, extension in zip(order, first["run"], first["extension"], strict=True):
        plain = extension == PLAIN_NAME
        at = 0 if plain else extensions.index(extension)
        found[model] = {
            "color": f"C{runs.index(run) % 10}",
            "linestyle": "-" if plain else DASHES[at % len(DASHES)],
            "marker": "o" if plain else "s^Dv<>p*"[at % 8],
        }
    return found


def loss_against_length(rows: pd.DataFrame, style: Mapping[str, Style], title: str, path: Path) -> None:
    """Draws the mean loss of each model against the evaluation length, and the best of the controls as a line.

    `rows` are one protocol's, on one set of targets; the file's suffix decides its format.
    """
    figure, axes = _figure(1)
    for model in _drawn(style, rows):
        mine = rows[rows["model"] == model].groupby("factor")["loss"].mean()
        axes[0].plot(mine.index, mine, label=model, **style[model])
    control = rows[rows["extension"] == PLAIN_NAME].groupby("model")["control_loss"].mean()
    axes[0].axhline(
        control.min(), color="grey", linestyle="--", linewidth=1, label="best control (context of L/2 to L)"
    )
    factors = sorted(set(rows["factor"]))
    axes[0].set_xscale("log", base=2)
    axes[0].set_xticks(factors, [f"{factor:g}x" for factor in factors])
    axes[0].set_xlabel(f"evaluation length / training length (L = {rows['seq_len'].iloc[0]} tokens)")
    axes[0].set_ylabel("loss (nats per token)")
    axes[0].set_title(title)
    axes[0].legend(fontsize="small")
    _save(figure, path)


def loss_by_position(curves: pd.DataFrame, style: Mapping[str, Style], seq_len: int, path: Path) -> None:
    """Draws the loss against the position in the window, a panel for every factor, and the best control's."""
    factors = sorted(set(curves["factor"]))
    figure, axes = _figure(len(factors))
    for panel, factor in zip(axes, factors, strict=True):
        here = curves[curves["factor"] == factor]
        for model in _drawn(style, curves):
            mine = here[here["model"] == model]
            panel.plot((mine["position"] + seq_len / 4) / seq_len, mine["loss"], label=model, **_line(style[model]))
        control = here.groupby("position")["control_loss"].min()
        panel.plot(
            (control.index + seq_len / 4) / seq_len, control, color="grey", linestyle="--", linewidth=1,
            label="best control",
        )  # fmt: skip
        panel.set_title(f"windows of {factor:g}x")
        panel.set_xlabel("position in the window / L")
    axes[0].set_ylabel("loss (nats per token)")
    axes[0].legend(fontsize="small")
    _save(figure, path)


def difference_by_position(
    curves: pd.DataFrame, found: list[Failure], style: Mapping[str, Style], seq_len: int, path: Path
) -> None:
    """Draws the difference to the control beyond L, in the longest windows, with its band and the failure lengths."""
    figure, axes = _figure(1)
    longest = curves[(curves["factor"] == curves["factor"].max()) & (curves["position"] >= seq_len)]
    for model in _drawn(style, curves):
        mine = longest[longest["model"] == model]
        x, color = (mine["position"] + seq_len / 4) / seq_len, style[model]["color"]
        axes[0].plot(x, mine["difference"], label=model, **_line(style[model]))
        axes[0].fill_between(x, mine["low"].astype(float), mine["high"].astype(float), color=color, alpha=0.15)
        for one in found:
            if one.model == model and one.factor == curves["factor"].max() and one.fails_from is not None:
                at = mine.loc[mine["position"] == one.fails_from, "difference"]
                axes[0].plot((one.fails_from + seq_len / 4) / seq_len, at, marker="v", color=color, markersize=9)
    bottom, top = axes[0].get_ylim()  # where the data are: the line at zero must not stretch the axis
    axes[0].axhline(0, color="grey", linewidth=1)
    axes[0].set_ylim(bottom, top)
    axes[0].set_xlabel(f"position in windows of {curves['factor'].max():g}x / L (L = {seq_len} tokens)")
    axes[0].set_ylabel("loss minus the control's (nats per token)")
    axes[0].set_title("Beyond L, with 95 % bands; triangles: failure lengths")
    axes[0].legend(fontsize="small")
    _save(figure, path)


def _drawn(style: Mapping[str, Style], rows: pd.DataFrame) -> list[str]:
    """The models that rows are of, in the order of the styles."""
    return [model for model in style if model in set(rows["model"])]


def _line(style: Style) -> dict[str, Any]:
    """Without the marker, where there are too many points for one at each."""
    return {name: value for name, value in style.items() if name != "marker"}


def _figure(panels: int) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "extrapolate"  # the same rows give the same file
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, panels, figsize=(7 if panels == 1 else 3.2 * panels, 4.2), layout="constrained", squeeze=False, sharey=True
    )
    for panel in axes[0]:
        panel.grid(alpha=0.3)
    return figure, axes[0]


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    try:
        files.write_atomically(
            path, lambda to: figure.savefig(to, format=path.suffix[1:], dpi=150, metadata=_undated(path))
        )
    finally:
        plt.close(figure)


def _undated(path: Path) -> dict[str, None] | None:
    return {"Date": None} if path.suffix == ".svg" else None
