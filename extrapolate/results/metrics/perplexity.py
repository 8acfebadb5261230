"""Perplexity, over targets and over windows."""

import math

import numpy as np

from extrapolate.results.metrics.base import Metric, Scored, metrics


@metrics.register("perplexity")
class Perplexity(Metric):
    """exp(loss)."""

    meaning = "e to the power of the loss."

    @staticmethod
    def of(scored: Scored) -> float:
        """Infinite if it exceeds the largest float."""
        return math.exp(scored.mean) if scored.mean < 700 else math.inf


@metrics.register("window_perplexity")
class WindowPerplexity(Metric):
    """exp(mean of the windows' mean losses), as eval/perplexity.py of github.com/jquesnelle/yarn averages."""

    meaning = (
        "e to the power of the mean of the windows' mean losses, as in YaRN's script. It equals `perplexity` if all "
        "windows have the same number of targets."
    )

    @staticmethod
    def of(scored: Scored) -> float:
        """Infinite if it exceeds the largest float."""
        of_window_W = np.bincount(scored.window_N, scored.loss_N) / np.bincount(scored.window_N)
        mean = float(of_window_W.mean())
        return math.exp(mean) if mean < 700 else math.inf
