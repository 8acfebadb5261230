"""How long a context a model can use: the longest length at which it passes every probe."""

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
    where the encoding ends before the length.
    """
    keys = ["model", "probe", "factor"]
    one_seed = rows.drop_duplicates([*keys, "depth"]).groupby(keys, sort=False)
    found = rows.groupby(keys, sort=False).agg(accuracy=("accuracy", strict_mean), length=("length", "first"))
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
    `accuracy`, `low` and `high`: missing if no probe fails up to the longest length.
    """
    found = accuracies(rows)
    table = []
    for model, mine in found.groupby("model", sort=False):
        row: dict[str, Any] = {"model": model, "threshold": threshold, "probes": mine["probe"].nunique()}
        row |= dict.fromkeys(("length", "factor", "ends_at", "fails", "accuracy", "low", "high"))
        for factor, here in mine.groupby("factor"):
            failing = here[~(here["low"] >= threshold)]
            if len(failing):
                worst = failing.sort_values("accuracy", na_position="first").iloc[0]
                row |= {"ends_at": int(worst["length"]), "fails": worst["probe"]}
                row |= {name: worst[name] for name in ("accuracy", "low", "high")}
                break
            row |= {"length": int(here["length"].iloc[0]), "factor": float(str(factor))}
        table.append(row)
    whole = {"length": "Int64", "ends_at": "Int64", "probes": "Int64"}
    return pd.DataFrame(table).astype(whole | dict.fromkeys(("factor", "accuracy", "low", "high"), "float64"))
