"""Training speed from the log; unknown if other programs took much of the time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MOST_TAKEN = 0.1  # of the time the training was ready to run; beyond it, its speed counts as unknown


def taken_by_others(log: "pd.DataFrame") -> float | None:
    """The share of the time the training was ready to run that other programs took; None if it is not known."""
    if "others" not in log or (shares := log["others"].dropna()).empty:
        return None
    return float(shares.mean())


def step_rates(log: "pd.DataFrame") -> "pd.Series[float] | None":
    """Tokens per second by row; None if they are not known, or other programs took more than MOST_TAKEN."""
    return log["tokens_per_s"] if "tokens_per_s" in log and (taken_by_others(log) or 0.0) <= MOST_TAKEN else None
