"""Charts of how a model uses position: what depends on a distance, and the norms of queries and keys by frequency."""

import pandas as pd

from extrapolate.reports import heat, inspection, traces
from extrapolate.reports.chart import Chart
from extrapolate.reports.page import Switch
from extrapolate.reports.styles import COLOURS

CURVES = {
    ("attention", "mass"): ("attention in a range", "where the range begins (tokens back)"),
    ("truncation", "tv"): ("change of predictions (TV)", "context left (tokens)"),
    ("removal", "rise"): ("rise of the loss (nats)", "distance of what is lost (tokens)"),
    ("receptive-field", "cumulative"): ("share of the gradient", "last tokens"),
}
NORMS = {"query_norm": "queries", "key_norm": "keys"}


def curves(mine: pd.DataFrame, name: str, file: str) -> Switch:
    """A view for each quantity that depends on a distance, with a line for each factor: means over layers and heads.

    mine: one model's rows, see `inspection.by_model`. name: of the switch. file: the picture of all four.
    """
    views = {}
    for curve, (title, below) in CURVES.items():
        found = inspection.values(mine, *curve).dropna(subset="at")
        lines, shown = [], []
        for at, (factor, some) in enumerate(found.groupby("factor")):
            means = some.groupby("at")["value"].mean()
            style = {"color": COLOURS[at % len(COLOURS)], "linestyle": "-", "marker": "o"}
            lines.append(traces.curve(f"{factor:g}x", means.index, means, style))
            shown.append(means)
        if lines:
            places = traces.numbers(sorted(set(found["at"])))
            axis = {"type": "category", "categoryorder": "array", "categoryarray": places}  # 0, then powers of 2
            shape = traces.layout(below, title, pd.concat(shown), xaxis=axis)
            views[title] = [Chart(title, file, lines, shape)]
    return Switch(name, "by distance:", views)


def norms(mine: pd.DataFrame, file: str) -> Chart:
    """The mean norms of queries and keys by layer and frequency, means over heads, at the least factor."""
    found = mine[(mine["measurement"] == "frequencies") & mine["quantity"].isin(NORMS) & mine["value"].notna()]
    found = found[found["factor"] == found["factor"].min()]
    wide = found.pivot_table(index=["quantity", "layer"], columns="at", values="value", aggfunc="mean")
    wide = wide.reindex(list(NORMS), level="quantity")
    names = [f"{NORMS[quantity]}, layer {layer}" for quantity, layer in wide.index]
    wide.columns = [f"{at:.0f}" for at in wide.columns]
    map_ = heat.Heat(names, list(wide), wide.to_numpy(float), float(wide.max(axis=None)), signed=False, digits=2)
    return heat.chart(map_, "mean norms of queries and keys by layer and frequency (0: the fastest)", file)
