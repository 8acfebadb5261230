"""Pictures of the loss by position in the window, and of the difference to the control. By matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate.reports import plots, styles
from extrapolate.reports.styles import MOST_BANDS, Style
from extrapolate.statistics.positions import Failure, furthest


def draw_losses(
    curves: pd.DataFrame, named: Sequence[str], style: Mapping[str, Style], seq_len: int, path: Path
) -> None:
    """Draws the loss against the position in the window, a panel for every factor, and the best control's.

    curves: see `positions.by_position`. named: the models with names and colours.
    """
    factors, bucket = sorted(set(curves["factor"]))[-plots.MOST_PANELS :], curves["bucket"].iloc[0]
    sheet = plots.Sheet(len(factors), style, named)
    means = []
    for panel, factor in zip(sheet.panels, factors, strict=True):
        here = curves[curves["factor"] == factor]
        for model in styles.drawn(style, here):
            mine = here[here["model"] == model]
            sheet.curve(panel, middle(mine["position"], bucket, seq_len), mine["loss"], model)
        control = here["control_loss"].groupby(here["position"]).min()
        sheet.reference(panel, middle(control.index, bucket, seq_len), control, "best control")
        means.append(here["loss"])
        panel.set_title(f"windows of {factor:g}x", fontsize="medium")
        panel.set_xlabel("position in the window / L", fontsize=plots.SMALL)
    sheet.fit(sheet.panels[0], pd.concat(means))
    sheet.panels[0].set_ylabel("loss (nats per token)")
    sheet.save(path)


def draw_differences(
    curves: pd.DataFrame,
    found: Sequence[Failure],
    named: Sequence[str],
    style: Mapping[str, Style],
    seq_len: int,
    path: Path,
) -> None:
    """Draws the difference to the control beyond L, with its band and the failure lengths.

    Where a failure length is of one length, that of the longest windows is drawn.
    """
    sheet = plots.Sheet(1, style, named)
    (panel,) = sheet.panels
    factor, bucket, longest = curves["factor"].max(), curves["bucket"].iloc[0], furthest(curves)
    fails = {one.model: one.fails_from for one in found if one.factor == factor}
    bands = banded(longest, named)
    for model in styles.drawn(style, longest):
        mine = longest[longest["model"] == model]
        x, colour = middle(mine["position"], bucket, seq_len), style[model]["color"]
        sheet.curve(panel, x, mine["difference"], model)
        if len(band := bands[bands["model"] == model]):
            sheet.band(panel, x, band["low"], band["high"], model)
        if model in named and (at := fails.get(model)) is not None:
            there = styles.drawable(mine.loc[mine["position"] == at, "difference"])
            panel.plot(
                middle(at, bucket, seq_len), there, marker="X", color=colour, markersize=8, markeredgecolor="white"
            )
    sheet.fit(panel, longest["difference"], bands[["low", "high"]])
    panel.axhline(0, color="grey", linewidth=1)
    panel.set_xlabel(f"position in windows of up to {factor:g}x / L (L = {seq_len} tokens)")
    panel.set_ylabel("loss minus the control's (nats per token)")
    panel.set_title(f"Beyond L{', with 95 % bands' if len(bands) else ''}; crosses: failure lengths")
    sheet.save(path)


def banded(longest: pd.DataFrame, named: Sequence[str]) -> pd.DataFrame:
    """The rows of the models that have a band: those with names, or none where they are too many."""
    found = longest[longest["model"].isin(named)]
    return found if found["model"].nunique() <= MOST_BANDS else found[:0]


def middle(position: Any, bucket: int, seq_len: int) -> Any:
    """The middle of a bucket of so many inputs that begins at a position, in training lengths."""
    return (position + bucket / 2) / seq_len
