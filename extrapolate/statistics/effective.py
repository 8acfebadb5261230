"""How long a context a model can use: the longest length at which it passes every probe.

To pass is to have an accuracy of a threshold; or, beside it, of a share of the model's own at 1x.
"""

import math
from typing import Any

import pandas as pd

from extrapolate.errors import UserError
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.intervals import wilson

THRESHOLD = 0.85  # of RULER's 0.856: what Llama 2 (7B) has at its training length there (arXiv 2404.06654)


def check_threshold(threshold: float) -> None:
    """Raises UserError if it is no accuracy that can be asked for."""
    if not 0 < threshold < 1:
        raise UserError(f"`threshold` is an accuracy above 0 and below 1, not {threshold:g}")


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """The accuracy of each model, probe and factor, the mean over depths and seeds, with Wilson's 95 % interval.

    `rows` are those of `Material.probes`. Seeds see the same windows, and so count as one in the interval. It is empty
    where the encoding ends before the length. `chance` is that of the probe.
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


def effective_lengths(rows: pd.DataFrame, threshold: float = THRESHOLD) -> pd.DataFrame:
    """The effective length of each model: up to it, every probe surely has an accuracy of the threshold or more.

    Surely: the lower end of its interval does. `rows` are those of `Material.probes`. Returns, a row a model:
    `model`; `threshold`; `length`, tokens, and `factor`: missing if a probe fails at the shortest length; `probes`,
    how many it was asked; `ends_at`, the next length, `fails`, the probe that has the lowest accuracy there, and its
    `accuracy`, `low` and `high`: missing if no probe fails up to the longest length. `own_length`, `own_factor`,
    `own_ends_at` and `own_fails` are the same with `own_bars` instead of the threshold, from 1x on; they are missing if
    a probe was not evaluated at 1x.
    """
    found = accuracies(rows).assign(threshold=threshold)
    found["own"] = own_bars(found, threshold)
    table = []
    for model, mine in found.groupby("model", sort=False):
        row: dict[str, Any] = {"model": model, "threshold": threshold, "probes": mine["probe"].nunique()}
        row |= _reached(mine, "threshold")
        own = _reached(mine[mine["factor"] >= 1], "own") if mine["own"].notna().all() else dict.fromkeys(row)
        table.append(row | {f"own_{name}": own[name] for name in ("length", "factor", "ends_at", "fails")})
    whole = dict.fromkeys(("length", "ends_at", "probes", "own_length", "own_ends_at"), "Int64")
    parts = dict.fromkeys(("factor", "accuracy", "low", "high", "own_factor"), "float64")
    return pd.DataFrame(table).astype(whole | parts)


def own_bars(found: pd.DataFrame, share: float) -> "pd.Series[float]":
    """The accuracy that passes each row of `accuracies`, as a share of the same model's own at 1x, both above chance.

    chance + share (accuracy at 1x - chance). It is NaN where 1x was not evaluated. A probe that a model has not surely
    learned does not pass at 1x itself: the lower end of its interval there is below chance, or below the bar.
    """
    at_1x = found[found["factor"] == 1].set_index(["model", "probe"])
    bars = at_1x["chance"] + share * (at_1x["accuracy"] - at_1x["chance"])
    return bars.reindex(pd.MultiIndex.from_frame(found[["model", "probe"]])).set_axis(found.index)


def _reached(mine: pd.DataFrame, bar: str) -> dict[str, Any]:
    """The longest length up to which every probe of one model has a lower end of at least `bar`; and what ends it."""
    row: dict[str, Any] = dict.fromkeys(("length", "factor", "ends_at", "fails", "accuracy", "low", "high"))
    for factor, here in mine.groupby("factor"):
        failing = here[~(here["low"] >= here[bar])]
        if len(failing):
            # With one threshold, the probe with the lowest accuracy; else the one that is furthest below its bar.
            behind = (failing["accuracy"] - failing[bar]).sort_values(na_position="first", kind="stable")
            worst = failing.loc[behind.index[0]]
            row |= {"ends_at": int(worst["length"]), "fails": worst["probe"]}
            row |= {name: worst[name] for name in ("accuracy", "low", "high")}
            break
        row |= {"length": int(here["length"].iloc[0]), "factor": float(str(factor))}
    return row
