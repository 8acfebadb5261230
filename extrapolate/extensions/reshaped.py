"""Reshapes frequencies, optionally after another extension has scaled them."""

import math
from abc import abstractmethod

from extrapolate import specs
from extrapolate.encodings.base import Spectrum
from extrapolate.errors import UserError
from extrapolate.extensions.base import extensions, register
from extrapolate.extensions.frequencies import Frequencies
from extrapolate.extensions.windows import check_at_least


class Reshaped(Frequencies):
    """Changes frequencies, after another extension of frequencies, the base, if there is one."""

    def __init__(self, name: str, base: str | None) -> None:
        """Raises UserError if `base`, a spec, does not name an extension of frequencies."""
        self.base = base
        self._base: Frequencies | None = None
        if base is None:
            return
        spec = specs.parse(base)
        cls = extensions[spec.name]
        if not issubclass(cls, Frequencies):
            raise UserError(f"{name}: the base must be an extension of frequencies, not {spec.name}")
        self._base = cls(**specs.convert_arguments(cls, spec.arguments, owner=spec.name))

    @abstractmethod
    def reshaped(self, spectrum: Spectrum, factors: list[float]) -> list[float]:
        """The factor of each frequency, from those of the base."""

    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        factors = [1.0] * spectrum.count if self._base is None else self._base.scaled(spectrum, seq_len, length)
        return self.reshaped(spectrum, factors)

    def logit_scale(self, seq_len: int, length: int) -> float:
        return 1.0 if self._base is None else self._base.logit_scale(seq_len, length)


@register("clipped-rope")
class ClippedRoPE(Reshaped):
    """Slows down the slowest pairs along a cosine: the first of them keeps its frequency, and the last stops turning.

    The n slowest frequencies are multiplied by (1 + cos(pi k / (n - 1))) / 2, k = 0..n-1: the first of them stays, and
    the last becomes 0. n of 0 or 1 changes nothing. Cut off at once, instead of tapered, they are p-rope.

    The authors train with the taper, at a longer L and with a larger theta; here it is applied to a trained model,
    at any length. Our reading: they have n = 20 of 64 pairs, and we keep that share of a head's pairs.

    Arguments: pairs, n (default 20/64 of them, rounded, and at least 2); base, an extension of frequencies that is
    applied first: base=ntk, or in parentheses base=(yarn:factor=8) (default: none).
    Source: clipped RoPE, called CoPE there, arXiv 2602.05258.
    """

    display = "Clipped RoPE"
    source = "arXiv 2602.05258"

    def __init__(self, *, pairs: int | None = None, base: str | None = None) -> None:
        super().__init__("clipped-rope", base)
        check_at_least("clipped-rope", "pairs", pairs, 0)
        self.pairs = pairs

    def reshaped(self, spectrum: Spectrum, factors: list[float]) -> list[float]:
        count = spectrum.count
        n = min(max(2, round(20 * count / 64)) if self.pairs is None else self.pairs, count)
        taper = [(1 + math.cos(math.pi * k / (n - 1))) / 2 if n > 1 else 1.0 for k in range(n)]
        return [factor * share for factor, share in zip(factors, [1.0] * (count - n) + taper, strict=True)]


@register("resonance")
class Resonance(Reshaped):
    """Rounds every wavelength to a whole number of tokens, so that far positions repeat the angles of near ones.

    w_m becomes 2 pi / round(2 pi / w_m). A pair that completes a turn within L then meets only angles that it has
    seen in training, at any length. The authors train with it; here it is applied to a trained model, at any length.

    Arguments: base, an extension of frequencies that is applied first: base=yarn, or in parentheses
    base=(yarn:factor=8) (default: none; the paper has YaRN).
    Source: Wang et al., arXiv 2403.00071.
    """

    display = "Resonance"
    source = "arXiv 2403.00071"

    def __init__(self, *, base: str | None = None) -> None:
        super().__init__("resonance", base)

    def reshaped(self, spectrum: Spectrum, factors: list[float]) -> list[float]:
        found = []
        for turns, factor in zip(spectrum.turns(1), factors, strict=True):  # per token
            wavelength = max(1, round(1 / (turns * factor))) if factor else math.inf
            found.append(1 / (turns * wavelength))
        return found
