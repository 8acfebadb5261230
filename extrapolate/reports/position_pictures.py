"""Pictures of the loss by position in the window, and of the difference to the control. By matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from extrapolate.reports import plots
from extrapolate.reports.positions import Failure


def draw_losses(curves: pd.DataFrame, style: Mapping[str, plots.Style], seq_len: int, path: Path) -> None:
    """Draws the loss against the position in the window, a panel for every factor, and the best control's."""
    factors = sorted(set(curves["factor"]))[-plots.MOST_PANELS :]
    figure, axes = plots.panels(len(factors))
    for panel, factor in zip(axes, factors, strict=True):
        here = curves[curves["factor"] == factor]
        for model in plots.drawn(style, curves):
            mine = here[here["model"] == model]
            x = (mine["position"] + seq_len / 4) / seq_len
            plots.curve(panel, x, mine["loss"], model, plots.line(style[model]))
        control = plots.drawable(here["control_loss"]).groupby(here["position"]).min()
        panel.plot(
            (control.index + seq_len / 4) / seq_len, control, color="grey", linestyle="--", linewidth=1,
            label="best control",
        )  # fmt: skip
        panel.set_title(f"windows of {factor:g}x")
        panel.set_xlabel("position in the window / L")
    axes[0].set_ylabel("loss (nats per token)")
    plots.legend(axes[0])
    plots.save(figure, path)


def draw_differences(
    curves: pd.DataFrame, found: Sequence[Failure], style: Mapping[str, plots.Style], seq_len: int, path: Path
) -> None:
    """Draws the difference to the control beyond L, in the longest windows, with its band and the failure lengths."""
    figure, axes = plots.panels(1)
    longest = curves[(curves["factor"] == curves["factor"].max()) & (curves["position"] >= seq_len)]
    for model in plots.drawn(style, curves):
        mine = longest[longest["model"] == model]
        x, color = (mine["position"] + seq_len / 4) / seq_len, style[model]["color"]
        plots.curve(axes[0], x, mine["difference"], model, plots.line(style[model]))
        low, high = plots.drawable(mine["low"]), plots.drawable(mine["high"])
        axes[0].fill_between(x, low, high, color=color, alpha=0.15)
        for one in found:
            if one.model == model and one.factor == curves["factor"].max() and one.fails_from is not None:
                at = mine.loc[mine["position"] == one.fails_from, "difference"]
                axes[0].plot(
                    (one.fails_from + seq_len / 4) / seq_len, plots.drawable(at), marker="v", color=color, markersize=9
                )
    bottom, top = axes[0].get_ylim()  # where the data are: the line at zero must not stretch the axis
    axes[0].axhline(0, color="grey", linewidth=1)
    axes[0].set_ylim(bottom, top)
    axes[0].set_xlabel(f"position in windows of {curves['factor'].max():g}x / L (L = {seq_len} tokens)")
    axes[0].set_ylabel("loss minus the control's (nats per token)")
    axes[0].set_title("Beyond L, with 95 % bands; triangles: failure lengths")
    plots.legend(axes[0])
    plots.save(figure, path)
