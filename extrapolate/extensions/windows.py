"""Limits which keys a query sees."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from extrapolate.encodings.base import MASK, Encoding
from extrapolate.encodings.plan import Branch, Pairs, Plan
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, register

PAIRS = "pairs"


def check_at_least(name: str, argument: str, value: int | None, least: int) -> None:
    """Raises UserError if a number of tokens is given and below `least`."""
    if value is not None and value < least:
        raise UserError(f"{name}: {argument} must be at least {least}, not {value}")


def near(window: int) -> Branch:
    """The pairs at a distance below the window, at their true positions."""
    return Branch(lambda i: i, lambda j: j, lambda i, j: i - j < window)


def far(window: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Whether pairs are at a distance of the window or more."""
    return lambda i, j: i - j >= window


@register("window")
class Window(Extension):
    """Hides all but the most recent keys: query i sees keys i - size + 1..i, at their true distance.

    Arguments: size, in tokens (default L).
    Source: Beltagy et al., arXiv 2004.05150.
    """

    display = "Window"
    source = "arXiv 2004.05150"
    slot = PAIRS
    needs = MASK

    def __init__(self, *, size: int | None = None) -> None:
        check_at_least("window", "size", size, 1)
        self.size = size

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        size = seq_len if self.size is None else self.size
        return Plan(window=size if size < length else None)


@dataclass(frozen=True)
class SinkPairs(Pairs):
    """The last `window` keys at their true distance; the first `sinks` keys, once they are further back, nearer."""

    sinks: int
    window: int
    renumbered: bool

    def branches(self) -> list[Branch]:
        sinks, window = self.sinks, self.window
        if self.renumbered:  # in a cache of sinks + window keys, a query is the last one
            queries, keys = lambda i: i.clamp(max=sinks + window - 1), lambda j: j
        else:
            queries, keys = lambda i: i * 0 + window, lambda j: j * 0
        return [near(window), Branch(queries, keys, lambda i, j: (i - j >= window) & (j < sinks))]


@register("sinks")
class Sinks(Extension):
    """Keeps the first few keys and the most recent ones, numbered as in a cache that holds nothing else.

    Query i sees keys within the window at their true distance, and keys j < sinks as if at distance min(i, sinks +
    window - 1) - j.

    Arguments: sinks, in tokens; window, in tokens (default L - sinks, so that no distance reaches L).
    Source: StreamingLLM, Xiao et al., arXiv 2309.17453.
    """

    display = "Sinks"
    source = "arXiv 2309.17453"
    slot = PAIRS
    needs = MASK

    def __init__(self, *, sinks: int = 4, window: int | None = None) -> None:
        check_at_least("sinks", "sinks", sinks, 0)
        check_at_least("sinks", "window", window, 1)
        self.sinks = sinks
        self.window = window

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        window = max(1, seq_len - self.sinks) if self.window is None else self.window
        return Plan(pairs=SinkPairs(self.sinks, window, True) if length > self.sinks + window else None)


@register("lm-infinite")
class LMInfinite(Extension):
    """Keeps the first few keys and the most recent ones, the first ones at most a window away.

    Query i sees keys within the window at their true distance, and keys j < sinks beyond it at a distance of window.

    Arguments: sinks, in tokens (default 10; the paper uses 10 to 100); window, in tokens (default L).
    Source: Han et al., arXiv 2308.16137.
    """

    display = "LM-Infinite"
    source = "arXiv 2308.16137"
    slot = PAIRS
    needs = MASK

    def __init__(self, *, sinks: int = 10, window: int | None = None) -> None:
        check_at_least("lm-infinite", "sinks", sinks, 0)
        check_at_least("lm-infinite", "window", window, 1)
        self.sinks = sinks
        self.window = window

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        window = seq_len if self.window is None else self.window
        return Plan(pairs=SinkPairs(self.sinks, window, False) if length > window else None)
