"""Rows of documents with the losses of their key tokens alone, or of all other targets, in the place of all."""

import numpy as np
import pandas as pd

RULE = ["key_context", "key_within"]  # the columns that say how key tokens were chosen
_LOSSES = ("loss", "control_loss", "optimum_loss")


def of_key_tokens(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that have key tokens, with `n_targets` and the losses, nats per target, of these."""
    found = {name: rows[f"key_{name}"].astype(float) for name in _LOSSES}
    return rows.assign(**found, n_targets=rows["n_key"].astype(int))[rows["n_key"] > 0]


def of_others(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that have other targets, with `n_targets` and the losses, nats per target, of these."""
    n_key, count = rows["n_key"].astype(int), rows["n_targets"] - rows["n_key"].astype(int)
    found = {}
    for name in _LOSSES:
        of_key = np.where(n_key > 0, rows[f"key_{name}"].astype(float), 0.0) * n_key
        found[name] = (rows[name].astype(float) * rows["n_targets"] - of_key) / count.where(count > 0)
    return rows.assign(**found, n_targets=count)[count > 0]


def same_rule(rows: pd.DataFrame) -> bool:
    """Whether all rows of losses have the same key tokens."""
    return bool(rows["n_key"].notna().all()) and len(rows[[*RULE, "n_key"]].drop_duplicates()) == 1
