"""Interpolates a single band of pairs, found by a search."""

from collections.abc import Callable
from typing import Self

from extrapolate.encodings.base import FREQUENCIES, Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.extensions.base import Searched, register
from extrapolate.extensions.positions import check_factor, resolved_factor
from extrapolate.extensions.windows import check_at_least


@register("critical-band")
class CriticalBand(Searched):
    """Divides the frequencies of one band of pairs by the factor, and leaves faster and slower ones alone.

    w_m becomes w_m / s for m = first..first + width - 1. Without `first`, it and `width` are searched for at each
    length by the loss of the validation split: the k in 0..M from which dividing all pairs is best, then the best width
    from there. Of equally good bands, the one tried first is kept. With M frequencies, the search tries up to 2 M bands
    for each length, each on about 8,192 targets; the progress line counts the targets. Windows of at most L tokens are
    left alone unless a factor is given.

    Arguments: first, m of the band's fastest pair, counted from 0 (default: searched for); width, in pairs (default: as
    many as there are); factor, s (default: N/L, at least 1).
    Source: the code of "Sliding Critical Band in RoPE-based Length Extrapolation", github.com/zifei-bai (2026).
    """

    display = "Critical band"
    example = "first=4"
    source = "github.com/zifei-bai"
    slot = "frequencies"
    needs = FREQUENCIES

    def __init__(self, *, first: int | None = None, width: int | None = None, factor: float | None = None) -> None:
        check_at_least("critical-band", "first", first, 0)
        check_at_least("critical-band", "width", width, 0)
        check_factor("critical-band", factor)
        if first is None and width is not None:
            raise UserError("critical-band: a width needs first=, the pair that the band begins with")
        self.first = first
        self.width = width
        self.factor = factor

    def unfitted(self) -> bool:
        return self.first is None

    def fitted(self, value: float) -> Self:
        return self._band(0, None if value else 0)

    def _band(self, first: int, width: int | None) -> Self:
        return type(self)(first=first, width=width, factor=self.factor)

    def found(self, encoding: Encoding, seq_len: int, length: int, loss: Callable[[Self], float]) -> Self:
        spectrum = encoding.spectrum()
        assert spectrum is not None, "it accepts other frequencies"
        count = spectrum.count
        losses = {first: loss(self._band(first, count - first)) for first in range(count + 1)}
        first = min(losses, key=lambda k: losses[k])
        of_width = {count - first: losses[first]}  # ends at the last pair, as it was tried
        of_width |= {width: loss(self._band(first, width)) for width in range(1, count - first)}
        return self._band(first, min(of_width, key=lambda width: of_width[width]))

    def most_tries(self, count: int) -> int:
        return 2 * count

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        assert self.first is not None, "it is searched for first"
        spectrum = encoding.spectrum()
        assert spectrum is not None, "it accepts other frequencies"
        s = resolved_factor(self.factor, seq_len, length)
        end = spectrum.count if self.width is None else self.first + self.width
        scale = tuple(1 / s if self.first <= m < end else 1.0 for m in range(spectrum.count))
        return Plan(frequency_scale=() if set(scale) == {1.0} else scale)
