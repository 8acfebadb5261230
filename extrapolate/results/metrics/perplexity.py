"""Perplexity."""

import math

from extrapolate.results.metrics.base import Metric, Scored, metrics


@metrics.register("perplexity")
class Perplexity(Metric):
    """exp(loss)."""

    meaning = "e to the power of the loss."

    @staticmethod
    def of(scored: Scored) -> float:
        """Infinite if it exceeds the largest float."""
        return math.exp(scored.mean) if scored.mean < 700 else math.inf
