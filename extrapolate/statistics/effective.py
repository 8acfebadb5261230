"""The effective length of a model: the longest at which it passes every probe.

It passes if its accuracy reaches a threshold or, in a second version, a share of its own accuracy at 1x.
"""

import math
from typing import Any

import pandas as pd

from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.intervals import wilson

THRESHOLD = 0.85  # after RULER's 0.856, Llama 2 (7B) at its training length (arXiv 2404.06654)


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """The accuracy of each model, probe and factor, averaged over depths and seeds, with Wilson's 95 % interval.

    `rows` are those of `ReportData.probes`. All seeds see the same windows, so they count as one in the interval, which
    is empty if the encoding ends before the length. `chance` is that of the probe.
    """
    keys = ["model", "probe", "factor"]
    one_seed = rows.drop_duplicates([*keys, "depth"]).groupby(keys, sort=False)
    found = rows.groupby(keys, sort=False).agg(
        accuracy=("accuracy", strict_mean), length=("length", "first"), chance=("chance", "first")
    )
    found["trials"] = one_seed["n_trials"].sum()
    windows = zip(found["accuracy"].tolist(), found["trials"].tolist(), strict=True)
    known = [wilson(share, trials) if share >= 0 else (math.nan, math.nan) for share, trials in windows]
    found["low"], found["high"] = zip(*known, strict=True)
    return found.reset_index()


def effective_lengths(rows: pd.DataFrame) -> pd.DataFrame:
    """The effective length of each model: up to it, the interval of every probe's accuracy is above THRESHOLD.

    `rows` are those of `ReportData.probes`; lengths at which a model lacks one of its probes do not count. Returns one
    row per model: `model`; `threshold`; `length`, tokens, and `factor`, missing if a probe fails at the shortest
    length; `probes`, their number; `ends_at`, the next length, `fails`, the probe with the lowest accuracy there, and
    its `accuracy`, `low` and `high`, missing if no probe fails up to the longest length. `own_length`, `own_factor`,
    `own_ends_at` and `own_fails` are the same with `own_bars` instead of THRESHOLD, from 1x on; they are missing if
    a probe was not evaluated at 1x.
    """
    found = accuracies(rows).assign(threshold=THRESHOLD)
    found["own"] = own_bars(found)
    table = []
    for model, group in found.groupby("model", sort=False):
        probes = group["probe"].nunique()
        group = group[group.groupby("factor")["probe"].transform("nunique") == probes]
        row: dict[str, Any] = {"model": model, "threshold": THRESHOLD, "probes": probes}
        row |= _reached(group, "threshold")
        own = _reached(group[group["factor"] >= 1], "own") if group["own"].notna().all() else dict.fromkeys(row)
        table.append(row | {f"own_{name}": own[name] for name in ("length", "factor", "ends_at", "fails")})
    whole = dict.fromkeys(("length", "ends_at", "probes", "own_length", "own_ends_at"), "Int64")
    parts = dict.fromkeys(("factor", "accuracy", "low", "high", "own_factor"), "float64")
    return pd.DataFrame(table).astype(whole | parts)


def own_bars(found: pd.DataFrame) -> "pd.Series[float]":
    """The accuracy needed to pass in each row of `accuracies`, relative to the model's own at 1x.

    It is chance + THRESHOLD (accuracy at 1x - chance), NaN if 1x was not evaluated. A probe that a model has not
    clearly learned does not even pass at 1x, because the lower end of its interval is below chance or below the bar.
    """
    at_1x = found[found["factor"] == 1].set_index(["model", "probe"])
    bars = at_1x["chance"] + THRESHOLD * (at_1x["accuracy"] - at_1x["chance"])
    return bars.reindex(pd.MultiIndex.from_frame(found[["model", "probe"]])).set_axis(found.index)


def _reached(group: pd.DataFrame, bar: str) -> dict[str, Any]:
    """The longest length up to which the lower end of every probe reaches `bar`, and the probe that fails next."""
    row: dict[str, Any] = dict.fromkeys(("length", "factor", "ends_at", "fails", "accuracy", "low", "high"))
    for factor, here in group.groupby("factor"):
        failing = here[~(here["low"] >= here[bar])]
        if len(failing):
            # The probe furthest below its bar; with one threshold, the one with the lowest accuracy.
            behind = (failing["accuracy"] - failing[bar]).sort_values(na_position="first", kind="stable")
            worst = failing.loc[behind.index[0]]
            row |= {"ends_at": int(worst["length"]), "fails": worst["probe"]}
            row |= {name: worst[name] for name in ("accuracy", "low", "high")}
            break
        row |= {"length": int(here["length"].iloc[0]), "factor": float(str(factor))}
    return row
