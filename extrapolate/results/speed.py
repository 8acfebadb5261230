"""How fast a training was, by its log, and whether that is known: beside other programs it is not."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MOST_TAKEN = 0.1  # of the time in which a training wants to compute: beyond it, its speed is that of the other programs


def taken_by_others(log: "pd.DataFrame") -> float | None:
    """The share of the time in which the training wanted to compute that other programs took; None if not known."""
    if "others" not in log or (shares := log["others"].dropna()).empty:
        return None
    return float(shares.mean())


def step_rates(log: "pd.DataFrame") -> "pd.Series[float] | None":
    """Tokens per second by row; None if they are not known, or other programs took more than MOST_TAKEN."""
    return log["tokens_per_s"] if "tokens_per_s" in log and (taken_by_others(log) or 0.0) <= MOST_TAKEN else None
