"""Changes the frequencies of rotary encodings."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from extrapolate.encodings.base import FREQUENCIES, Encoding, Spectrum
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, register
from extrapolate.extensions.positions import check_factor, resolved_factor


class Frequencies(Extension):
    """Multiplies each of the M frequencies w_m, fastest first, by a factor."""

    slot = "frequencies"
    needs: ClassVar[str] = FREQUENCIES

    @abstractmethod
    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        """The factor of each frequency."""

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        spectrum = encoding.spectrum()
        assert spectrum is not None, "it accepts other frequencies"
        factors = self.scaled(spectrum, seq_len, length)
        return Plan(
            frequency_scale=() if all(factor == 1.0 for factor in factors) else tuple(factors),
            logit_scale=self.logit_scale(seq_len, length),
        )

    def logit_scale(self, seq_len: int, length: int) -> float:
        """The factor of every score."""
        return 1.0


def ntk_factors(count: int, s: float) -> list[float]:
    """The factors for theta' = theta s^(K/(K-2)): 1 for the fastest frequency, 1/s for the slowest."""
    return [s ** (-m / (count - 1)) if count > 1 else 1 / s for m in range(count)]


def by_parts(shares: Sequence[float], s: float) -> list[float]:
    """The factor of each frequency: it keeps a share, and the rest is divided by s."""
    return [1.0 if s == 1 else share + (1 - share) / s for share in shares]


def ramp_ends(spectrum: Spectrum, seq_len: int, fast: float, slow: float) -> tuple[int, int]:
    """The first and last pair of a ramp over pairs, rounded outwards, as in YaRN's code."""
    return (
        max(0, math.floor(spectrum.pair_of(fast, seq_len))),
        min(2 * spectrum.count - 1, math.ceil(spectrum.pair_of(slow, seq_len))),
    )


def check_turns(name: str, fast: float, slow: float) -> None:
    """Raises UserError unless fast is more turns than slow, and slow positive."""
    if not fast > slow > 0:
        raise UserError(f"{name}: fast must be more turns than slow, and slow positive, not {fast:g}, {slow:g}")


def yarns_scale(s: float) -> float:
    """YaRN's factor of scores: (0.1 ln s + 1)^2, or 1 up to s = 1."""
    return (0.1 * math.log(max(1.0, s)) + 1.0) ** 2


@register("ntk")
class NTK(Frequencies):
    """Raises the base theta so that the slowest pair is interpolated by the full factor and the fastest not at all.

    w_m is multiplied by s^(-m/(M-1)), m = 0..M-1; for RoPE this is theta' = theta s^(K/(K-2)).

    Arguments: factor, s (default: N/L, at least 1).
    Source: bloc97's post "NTK-Aware Scaled RoPE" (2023), described in arXiv 2309.00071.
    """

    display = "NTK"
    source = "arXiv 2309.00071"

    def __init__(self, *, factor: float | None = None) -> None:
        check_factor("ntk", factor)
        self.factor = factor

    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        return ntk_factors(spectrum.count, resolved_factor(self.factor, seq_len, length))


@register("dynamic-ntk")
class DynamicNTK(Frequencies):
    """Uses the NTK base for the length at hand, and changes nothing up to L.

    The formula is ntk's with s = factor n/L - (factor - 1), n = max(N, L). Every query of a window uses the s of the
    whole window. With factor 1 it is ntk with its default.

    Arguments: factor, a ratio.
    Source: emozilla's post on dynamically scaled RoPE (2023), described in arXiv 2309.00071.
    """

    display = "Dynamic NTK"
    source = "arXiv 2309.00071"

    def __init__(self, *, factor: float = 2.0) -> None:
        check_factor("dynamic-ntk", factor)
        self.factor = factor

    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        s = self.factor * max(length, seq_len) / seq_len - (self.factor - 1)
        return ntk_factors(spectrum.count, s)


@register("ntk-by-parts")
class NTKByParts(Frequencies):
    """Interpolates pairs that turn rarely within L, leaves those that turn often alone, and blends in between.

    A pair keeps a share of its frequency and has the rest divided by s. The share falls from 1, at fast turns within L,
    to 0, at slow turns: linearly in the pair's index, as in the authors' code (ramp "pairs", with the ends rounded
    outwards), or linearly in the turns, as in the paper's text (ramp "turns"). The two are not equal.

    Arguments: factor, s (default: N/L, at least 1); fast and slow, in turns within L; ramp, "pairs" or "turns".
    Source: Peng et al., arXiv 2309.00071.
    """

    display = "NTK-by-parts"
    source = "arXiv 2309.00071"
    name: ClassVar[str] = "ntk-by-parts"

    def __init__(
        self,
        *,
        factor: float | None = None,
        fast: float = 32.0,
        slow: float = 1.0,
        ramp: Literal["pairs", "turns"] = "pairs",
    ) -> None:
        check_factor(self.name, factor)
        check_turns(self.name, fast, slow)
        self.factor = factor
        self.fast = fast
        self.slow = slow
        self.ramp = ramp

    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        s = resolved_factor(self.factor, seq_len, length)
        if self.ramp == "turns":
            return by_parts(shares_by_turns(spectrum, seq_len, self.fast, self.slow), s)
        ramp_start, ramp_end = ramp_ends(spectrum, seq_len, self.fast, self.slow)
        width = ramp_end - ramp_start or 0.001
        return by_parts([1 - clip((m - ramp_start) / width) for m in range(spectrum.count)], s)


@register("yarn")
class YaRN(NTKByParts):
    """NTK-by-parts with slightly sharper attention.

    Frequencies are those of ntk-by-parts, and every score is multiplied by A^2, A = 0.1 ln s + 1. (Public code
    multiplies the cosines and sines of both queries and keys by A, which gives the same scores if every pair is
    rotated.)

    Arguments: as for ntk-by-parts.
    Source: Peng et al., arXiv 2309.00071.
    """

    display = "YaRN"
    name = "yarn"

    def logit_scale(self, seq_len: int, length: int) -> float:
        return yarns_scale(resolved_factor(self.factor, seq_len, length))


@register("mrrope")
class MrRoPE(Frequencies):
    """Divides frequencies by a power of the factor that rises over the middle pairs, evenly or faster and faster.

    w_m becomes w_m / s^e. e is 0 up to pair a, the last that turns `fast` times within L, and 1 from pair b, the first
    that turns `slow` times; the ends are rounded outwards, as yarn's. In between, with t = m - a and n = b - a, e is t
    / n (form "uni") or t (t + 1) / (n (n + 1)) (form "pro"). The second form leaves most of the division to the slower
    pairs. Scores are multiplied by A^2, A = 0.1 ln s + 1, as in yarn. The paper writes e as sums that start at 1; this
    is what its code computes.

    Arguments: factor, s (default: N/L, at least 1); form, "pro" or "uni"; fast and slow, in turns within L.
    Source: MrRoPE, arXiv 2601.22181.
    """

    display = "MrRoPE"
    source = "arXiv 2601.22181"

    def __init__(
        self,
        *,
        factor: float | None = None,
        form: Literal["pro", "uni"] = "pro",
        fast: float = 32.0,
        slow: float = 1.0,
    ) -> None:
        check_factor("mrrope", factor)
        check_turns("mrrope", fast, slow)
        self.factor = factor
        self.form = form
        self.fast = fast
        self.slow = slow

    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        s = resolved_factor(self.factor, seq_len, length)
        ramp_start, ramp_end = ramp_ends(spectrum, seq_len, self.fast, self.slow)
        width = ramp_end - ramp_start
        exponents = []
        for m in range(spectrum.count):
            t = m - ramp_start
            if t <= 0 or m >= ramp_end:  # a ramp without width leaves its first pair alone, as in the authors' code
                exponents.append(0.0 if t <= 0 else 1.0)
            else:
                exponents.append(t / width if self.form == "uni" else t * (t + 1) / (width * (width + 1)))
        return [s**-exponent for exponent in exponents]

    def logit_scale(self, seq_len: int, length: int) -> float:
        return yarns_scale(resolved_factor(self.factor, seq_len, length))


@register("llama3")
class Llama3(Frequencies):
    """Llama 3.1's blend: interpolates slow pairs, leaves fast ones alone, and blends linearly in the turns in between.

    A pair that turns r times within L keeps the share clip((r - slow) / (fast - slow), 0, 1) of its frequency; the rest
    is divided by s.

    Arguments: factor, s (default: N/L, at least 1; Llama 3.1 has 8); slow and fast, in turns within L.
    Source: the Llama 3 herd of models, arXiv 2407.21783, and its released code.
    """

    display = "Llama 3"
    source = "arXiv 2407.21783"

    def __init__(self, *, factor: float | None = None, slow: float = 1.0, fast: float = 4.0) -> None:
        check_factor("llama3", factor)
        check_turns("llama3", fast, slow)
        self.factor = factor
        self.slow = slow
        self.fast = fast

    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        shares = shares_by_turns(spectrum, seq_len, self.fast, self.slow)
        return by_parts(shares, resolved_factor(self.factor, seq_len, length))


@register("p-rope")
class Truncation(Frequencies):
    """Stops the slowest pairs of a trained model from turning: p-RoPE's spectrum without its training.

    The floor(p M) fastest of M frequencies are kept, and the others become 0. p = 1 changes nothing, nor does a p that
    drops only pairs that do not turn.

    Arguments: p, a share.
    Source: the encoding of Barbero et al., arXiv 2410.06205, applied after training.
    """

    display = "p-RoPE"
    source = "arXiv 2410.06205"

    def __init__(self, *, p: float = 0.75) -> None:
        if not 0 <= p <= 1:
            raise UserError(f"p-rope: p must be between 0 and 1, not {p:g}")
        self.p = p

    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        kept = int(self.p * spectrum.count)
        return [1.0] * kept + [0.0] * (spectrum.count - kept)


def shares_by_turns(spectrum: Spectrum, seq_len: int, fast: float, slow: float) -> list[float]:
    """The share that each frequency keeps on a ramp over turns within L: 1 at fast turns, 0 at slow ones."""
    return [clip((turns - slow) / (fast - slow)) for turns in spectrum.turns(seq_len)]


def clip(share: float) -> float:
    """Clips a number to 0..1."""
    return min(1.0, max(0.0, share))
