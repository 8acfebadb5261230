"""All pairs attend, but distant ones pretend to be nearer."""

import math
from dataclasses import dataclass

from extrapolate.encodings.base import DISTANCES, Encoding
from extrapolate.encodings.plan import Branch, Pairs, Plan
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, register
from extrapolate.extensions.windows import PAIRS, check_at_least, far, near


@dataclass(frozen=True)
class LeakyPairs(Pairs):
    """Distance r below the window; from there on window + (r - window) / k, or just window if k is None."""

    window: int
    k: float | None

    def branches(self) -> list[Branch]:
        window, k = self.window, self.k
        if k is None:
            return [near(window), Branch(lambda i: i * 0 + window, lambda j: j * 0, far(window))]
        return [near(window), Branch(lambda i: i / k + (window - window / k), lambda j: j / k, far(window))]


@register("rerope")
class ReRoPE(Extension):
    """Caps the distance of every pair: all keys beyond a window count as if they were at its edge.

    Distance r counts as r below the window W, else as W or, with k (the leaky form), as W + (r - W) / k. k = 1 changes
    nothing. The author's code adds log-n: rerope + log-n.

    Arguments: window, W in tokens (default L/8); k, a ratio (default: none, which is infinity; leaky ReRoPE has 16).
    Source: Su, kexue.fm 9708 and 9728 (2023).
    """

    display = "ReRoPE"
    source = "kexue.fm 9708"
    slot = PAIRS
    needs = DISTANCES

    def __init__(self, *, window: int | None = None, k: float | None = None) -> None:
        check_at_least("rerope", "window", window, 1)
        if k is not None and k < 1:
            raise UserError(f"rerope: k must be at least 1, not {k:g}")
        self.window = window
        self.k = k

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        window = max(1, seq_len // 8) if self.window is None else self.window
        return Plan(pairs=LeakyPairs(window, self.k) if length > window and self.k != 1 else None)


@dataclass(frozen=True)
class GroupedPairs(Pairs):
    """Distance r below the window; from there on floor(i/group) - floor(j/group) + window - floor(window/group)."""

    group: int
    window: int

    def branches(self) -> list[Branch]:
        group, window = self.group, self.window
        shift = window - window // group
        return [near(window), Branch(lambda i: i // group + shift, lambda j: j // group, far(window))]

    def farthest(self, length: int) -> int:
        """The largest pretended distance in a window of `length` tokens."""
        if length <= self.window:
            return length - 1
        return (length - 1) // self.group + self.window - self.window // self.group


@register("self-extend")
class SelfExtend(Extension):
    """Leaves near pairs alone and counts far ones in groups, in which neighbours share a position.

    Distance r counts as r below the window W, else as floor(i/G) - floor(j/G) + W - floor(W/G). G = 1 changes nothing.

    Arguments: group, G in tokens (default: for each evaluation length, the smallest that keeps every distance below L);
    window, W in tokens (default L/4).
    Source: Jin et al., arXiv 2401.01325.
    """

    display = "Self-Extend"
    source = "arXiv 2401.01325"
    slot = PAIRS
    needs = DISTANCES

    def __init__(self, *, group: int | None = None, window: int | None = None) -> None:
        check_at_least("self-extend", "group", group, 1)
        check_at_least("self-extend", "window", window, 1)
        self.group = group
        self.window = window

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        window = max(1, seq_len // 4) if self.window is None else self.window
        group = self._smallest(window, seq_len, length) if self.group is None else self.group
        return Plan(pairs=GroupedPairs(group, window) if group > 1 and length > window else None)

    @staticmethod
    def _smallest(window: int, seq_len: int, length: int) -> int:
        for group in range(1, length + 1):
            if GroupedPairs(group, window).farthest(length) < max(seq_len, 2):
                return group
        raise UserError(
            f"self-extend: with a window of {window} no group keeps {length} tokens within {seq_len}; "
            "give a smaller window"
        )


@dataclass(frozen=True)
class ChunkedPairs(Pairs):
    """Keys are numbered from 0 in every chunk; queries depend on how many chunks back the key is: 0, 1 or more."""

    chunk: int
    size: int

    def branches(self) -> list[Branch]:
        chunk, n = self.chunk, self.size
        return [
            Branch(lambda i: i % n, lambda j: j % n, lambda i, j: i // n == j // n),
            Branch(lambda i: (i % n + n).clamp(max=chunk), lambda j: j % n, lambda i, j: i // n == j // n + 1),
            Branch(lambda i: i * 0 + min(2 * n - 1, chunk), lambda j: j % n, lambda i, j: i // n > j // n + 1),
        ]


@register("dual-chunk")
class DualChunk(Extension):
    """Cuts the text into chunks, and numbers a query by whether the key is in its own, the previous or an older chunk.

    With n = chunk - local, key j is at j mod n. Query i is at i mod n for keys of its own chunk; at min(i mod n + n,
    chunk) for those of the previous chunk, which keeps true distances near the border; and at min(2n - 1, chunk) for
    older ones. With the defaults no distance reaches L. Windows of at most n tokens are left alone.

    Arguments: chunk, in tokens (default 3L/4); local, in tokens (default L/8).
    Source: An et al., arXiv 2402.17463.
    """

    display = "Dual Chunk"
    source = "arXiv 2402.17463"
    slot = PAIRS
    needs = DISTANCES

    def __init__(self, *, chunk: int | None = None, local: int | None = None) -> None:
        check_at_least("dual-chunk", "chunk", chunk, 2)
        check_at_least("dual-chunk", "local", local, 0)
        self.chunk = chunk
        self.local = local

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        chunk = 3 * seq_len // 4 if self.chunk is None else self.chunk
        size = chunk - (seq_len // 8 if self.local is None else self.local)
        if size < 1:
            raise UserError(f"dual-chunk: chunk must be more than local, not {chunk}")
        return Plan(pairs=ChunkedPairs(chunk, size) if length > size else None)


@dataclass(frozen=True)
class ShiftedPairs(Pairs):
    """Distance r below the shift; from there on r - shift + window."""

    shift: int
    window: int

    def branches(self) -> list[Branch]:
        shift, window = self.shift, self.window
        return [near(shift), Branch(lambda i: i - (shift - window), lambda j: j, far(shift))]


SHARPER = (0.1 * math.log(2) + 1) ** 2  # what STRING's code multiplies scores by


@register("string")
class STRING(Extension):
    """Moves all far keys nearer by the same number of tokens, onto distances that training has shown more often.

    Distance r counts as r below the shift S, else as r - S + W. The farthest pair of a window of more than S tokens is
    at N - 1 - S + W. With the defaults that is below L up to about N = 1.27 L: the method is for long texts within L,
    and reaches further only with a larger S. W = S changes no distance.

    As in the authors' code, though not in the paper, scores are multiplied by (0.1 ln 2 + 1)^2, in windows of any
    length. When that code reads a whole text at once, it counts a key at exactly S twice, near and far; here, as when
    it decodes, it is far.

    Arguments: shift, S in tokens (default 0.33 L, as they suggest); window, W in tokens (default L/16; our choice,
    since theirs, 128, is larger than a small L); scale, a factor of every score.
    Source: An et al., arXiv 2410.18745.
    """

    display = "STRING"
    source = "arXiv 2410.18745"
    slot = PAIRS
    needs = DISTANCES

    def __init__(self, *, shift: int | None = None, window: int | None = None, scale: float = SHARPER) -> None:
        check_at_least("string", "shift", shift, 1)
        check_at_least("string", "window", window, 0)
        if scale <= 0:
            raise UserError(f"string: scale must be positive, not {scale:g}")
        self.shift = shift
        self.window = window
        self.scale = scale

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        shift = max(1, int(0.33 * seq_len)) if self.shift is None else self.shift
        window = min(shift, max(1, seq_len // 16)) if self.window is None else self.window
        if window > shift:
            raise UserError(f"string: window must be at most shift, {shift}, not {window}")
        return Plan(pairs=ShiftedPairs(shift, window) if length > shift > window else None, logit_scale=self.scale)
