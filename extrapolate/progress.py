"""What long work tells about its progress: one interface for training, evaluation and probes."""

from collections.abc import Callable

# Called as work goes on: what is being done, and how many inputs (tokens) were done since the last call.
Advance = Callable[[str, float], None]


def unseen(what: str, inputs: float) -> None:
    """Progress that nobody watches."""
