"""Charts of the loss by position in the window, and of the difference to the control, with the failure lengths."""

from collections.abc import Mapping, Sequence

import pandas as pd

from extrapolate.reports import styles, traces
from extrapolate.reports.chart import Chart
from extrapolate.reports.position_pictures import banded, middle
from extrapolate.reports.styles import Style
from extrapolate.statistics.positions import Failure, furthest


def losses(
    curves: pd.DataFrame,
    found: Sequence[Failure],
    named: Sequence[str],
    style: Mapping[str, Style],
    seq_len: int,
    file: str,
) -> Chart:
    """The loss in the longest windows; a picture shows the shorter ones too.

    curves: see `positions.by_position`. named: the models with names and colours.
    """
    longest = curves[curves["factor"] == curves["factor"].max()]
    lines = _lines(longest, "loss", found, named, style, seq_len)
    control = longest.groupby("position")["control_loss"].min()
    at = middle(control.index, longest["bucket"].iloc[0], seq_len)
    lines.append(traces.reference("best control", at, control))
    shape = traces.layout(_below(curves, seq_len), "loss (nats per token)", longest["loss"], control)
    return Chart("loss by position in the window", file, traces.arranged(lines), shape)


def differences(
    curves: pd.DataFrame,
    found: Sequence[Failure],
    named: Sequence[str],
    style: Mapping[str, Style],
    seq_len: int,
    file: str,
) -> Chart:
    """The difference to the control beyond L, with its band; see `position_pictures.draw_differences`."""
    longest = furthest(curves)
    bands = banded(longest, named)
    lines: list[traces.Trace] = []
    for model in styles.drawn(style, bands):
        mine = bands[bands["model"] == model]
        x = [*middle(mine["position"], mine["bucket"].iloc[0], seq_len)]
        lines += traces.band(model, x, mine["low"], mine["high"], style[model])
    lines += _lines(longest, "difference", found, named, style, seq_len)
    above = "loss minus the control's (nats per token)"
    shape = traces.layout(_below(curves, seq_len), above, longest["difference"], around=bands[["low", "high"]])
    return Chart("difference to the control by position in the window", file, traces.arranged(lines), shape)


def _lines(
    longest: pd.DataFrame,
    column: str,
    found: Sequence[Failure],
    named: Sequence[str],
    style: Mapping[str, Style],
    seq_len: int,
) -> list[traces.Trace]:
    """A line for each model, and crosses at the failure lengths of those that are named."""
    fails = {one.model: one.fails_from for one in found if one.factor == longest["factor"].max()}
    bucket = longest["bucket"].iloc[0]
    lines: list[traces.Trace] = []
    for model in styles.drawn(style, longest):
        mine, own = longest[longest["model"] == model], style[model] if model in named else None
        line = traces.curve(model, middle(mine["position"], bucket, seq_len), mine[column], own)
        lines.append(traces.compact(line))
        if own is not None and (at := fails.get(model)) is not None:
            there = mine[mine["position"] == at]
            lines.append(
                {
                    "type": "scatter", "mode": "markers", "legendgroup": model, "showlegend": False,
                    "name": traces.shown(model), "x": traces.numbers([middle(at, bucket, seq_len)] * len(there)),
                    "y": traces.numbers(there[column]), "text": [f", fails from {at} tokens on"] * len(there),
                    "marker": {"symbol": "x", "size": 9, "color": own["color"]},
                }
            )  # fmt: skip
    return lines


def _below(curves: pd.DataFrame, seq_len: int) -> str:
    return f"position in windows of {curves['factor'].max():g}x / L (L = {seq_len} tokens); crosses: failure lengths"
