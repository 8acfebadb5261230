"""Training speed from the log; unknown if other programs took too much of the time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MOST_TAKEN = 0.1  # the largest share taken by other programs at which the speed counts as known


def taken_by_others(log: "pd.DataFrame") -> float | None:
    """The share of the training's runnable time that other programs took; None if unknown."""
    if "cpu_taken_share" not in log or (shares := log["cpu_taken_share"].dropna()).empty:
        return None
    return float(shares.mean())


def step_rates(log: "pd.DataFrame") -> "pd.Series[float] | None":
    """Tokens per second by row; None if unknown, or if other programs took more than MOST_TAKEN."""
    return log["tokens_per_s"] if "tokens_per_s" in log and (taken_by_others(log) or 0.0) <= MOST_TAKEN else None
