"""Jet-Long: near pairs as in training, far ones in groups or at slower frequencies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from extrapolate.encodings.base import DISTANCES, FREQUENCIES, Encoding
from extrapolate.encodings.plan import PLAIN, Branch, Pairs, Plan
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, register
from extrapolate.extensions.frequencies import by_parts, check_turns, clip, ramp_ends
from extrapolate.extensions.windows import PAIRS, check_at_least, far, near


@dataclass(frozen=True)
class RegroupedPairs(Pairs):
    """Distance r up to the window; beyond it floor(i/group) - floor(j/group)."""

    group: int
    window: int

    def branches(self) -> list[Branch]:
        group, beyond = self.group, self.window + 1
        return [near(beyond), Branch(lambda i: i // group, lambda j: j // group, far(beyond))]


@dataclass(frozen=True)
class SlowedPairs(Pairs):
    """A pair turns by w r up to the window; beyond it by w window + w scale (r - window), scale for each frequency."""

    scale: tuple[float, ...]
    window: int

    def branches(self) -> list[Branch]:
        beyond = self.window + 1
        return [near(beyond), Branch(lambda i: i, lambda j: j, far(beyond), self.scale, float(self.window))]


def window_of(name: str, window: int | None, seq_len: int) -> int:
    """The given window, or L/16 by default. Raises UserError if it is not below L."""
    size = max(1, seq_len // 16) if window is None else window
    if size >= seq_len:
        raise UserError(f"{name}: window must be less than the training length, {seq_len}, not {size}")
    return size


@register("jet-long")
class JetLong(Extension):
    """Leaves near pairs alone and counts far ones in groups, which are larger the longer the window of text is.

    Beyond L, distance r counts as r up to W, else as floor(i/G) - floor(j/G), G = ceil(N/L). Self-extend shifts the
    groups so that distances go on from W; here they drop just beyond W. G is the same for every query of a window, also
    for those within L. Windows of at most L tokens are left alone.

    Arguments: window, W in tokens, included (default L/16, as in the authors' models).
    Source: Jet-Long, arXiv 2607.07740.
    """

    display = "Jet-Long"
    source = "arXiv 2607.07740"
    slot = PAIRS
    needs = DISTANCES

    def __init__(self, *, window: int | None = None) -> None:
        check_at_least("jet-long", "window", window, 0)
        self.window = window

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        window = window_of("jet-long", self.window, seq_len)
        return PLAIN if length <= seq_len else Plan(pairs=RegroupedPairs(math.ceil(length / seq_len), window))


@register("jet-long-freq")
class JetLongFreq(Extension):
    """Leaves near pairs alone and turns far ones more slowly from there on, by YaRN's ramp, without a jump.

    Beyond L, pair m turns by w r up to W, else by w W + w' (r - W), with w' = w (1 - g (1 - 1/s)). g rises from 0, for
    fast turns within L, to 1, for slow turns, linearly in the pair's index with the ends rounded outwards, and s = (N -
    W) / (L - W). All scores, including near ones, are multiplied by 0.1 ln s + 1; yarn squares this. Windows of
    at most L tokens are left alone. The authors' code continues the angle at W, as here.

    Arguments: window, W in tokens, included (default L/16, as in the authors' models); fast and slow, in turns within
    L.
    Source: Jet-Long, arXiv 2607.07740, the form jetlong_freq of its code.
    """

    display = "Jet-Long-freq"
    source = "arXiv 2607.07740"
    slot = PAIRS
    needs = FREQUENCIES

    def __init__(self, *, window: int | None = None, fast: float = 32.0, slow: float = 1.0) -> None:
        check_at_least("jet-long-freq", "window", window, 0)
        check_turns("jet-long-freq", fast, slow)
        self.window = window
        self.fast = fast
        self.slow = slow

    def refusal(self, encodings: Sequence[Encoding]) -> str | None:
        if (reason := super().refusal(encodings)) is not None:
            return reason
        if DISTANCES not in encodings[0].accepts or all(encoding.rotations() is None for encoding in encodings):
            return f"it turns queries once more, and pairs of {encodings[0].display} do not turn at one speed each"
        return None

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        window = window_of("jet-long-freq", self.window, seq_len)
        if length <= seq_len:
            return PLAIN
        spectrum = encoding.spectrum()
        assert spectrum is not None, "it accepts other frequencies"
        s = (length - window) / (seq_len - window)
        ramp_start, ramp_end = ramp_ends(spectrum, seq_len, self.fast, self.slow)
        ramp_end = min(ramp_end, spectrum.count - 1)  # of this code alone: YaRN's own goes up to the head's size
        width = max(ramp_end - ramp_start, 0.001)
        scale = by_parts([1 - clip((m - ramp_start) / width) for m in range(spectrum.count)], s)
        return Plan(pairs=SlowedPairs(tuple(scale), window), logit_scale=0.1 * math.log(s) + 1)
