"""A factor of its own for each frequency: given, derived or searched for."""

import math
from collections.abc import Callable, Iterable
from typing import Self

from extrapolate.encodings.base import Encoding, Spectrum
from extrapolate.errors import UserError
from extrapolate.extensions.base import Searched, register
from extrapolate.extensions.frequencies import Frequencies, NTKByParts, ntk_factors
from extrapolate.extensions.positions import check_factor, resolved_factor

POPULATION = 16  # lists in a generation of the search
DEVIATION = 0.1  # standard deviation of the first generation's variations, as a share of the range of logarithms


@register("longrope")
class LongRoPE(Frequencies, Searched):
    """Divides each frequency by its own factor, from a list, and makes attention slightly sharper.

    w_m becomes w_m / lambda_m, and scores are multiplied by A^2 = 1 + ln s / ln L. Windows of at most L tokens use the
    short list, and the sharper scores only if a factor is given. The paper's rule that the first few positions are not
    scaled is left out, as in public code.

    The paper searches for its lists. Here, the long one defaults to the divisors of ntk-by-parts. With `search`, that
    many lists are tried for each length, and the one with the lowest loss on about 8,192 validation targets is used;
    the progress line counts the targets. The search is scipy's differential evolution (`pip install
    'extrapolate[search]'`) with 16 lists a generation, from 1 to 1 + s and rising from fast pairs to slow ones as in
    the paper. The first generation has the derived list, PI's, NTK's and one that changes nothing, and variations of
    these, so the list that is found never does worse on this text than any of the four. The authors' own search has 64
    lists in each of 40 generations.

    Arguments: factor, s (default: N/L, at least 1); long and short, lists of numbers, one per pair, in parentheses:
    long=(1,1.5,4,8) (default: derived, and ones); search, lists to try, a multiple of 16 (default: none).
    Source: Ding et al., arXiv 2402.13753.
    """

    display = "LongRoPE"
    source = "arXiv 2402.13753"
    example = "long=(1,1.5,4,8)"

    def __init__(
        self,
        *,
        factor: float | None = None,
        long: str | None = None,
        short: str | None = None,
        search: int | None = None,
    ) -> None:
        check_factor("longrope", factor)
        if search is not None and (search < 2 * POPULATION or search % POPULATION):
            raise UserError(f"longrope: search must be a multiple of {POPULATION}, at least 32, not {search}")
        if search is not None and long is not None:
            raise UserError("longrope: there is nothing to search for if the long list is given: leave one of them out")
        self.factor = factor
        self.long = long
        self.short = short
        self.search = search
        self._long, self._short = _numbers("long", long), _numbers("short", short)

    def scaled(self, spectrum: Spectrum, seq_len: int, length: int) -> list[float]:
        given = self._long if length > seq_len else self._short
        if given is None and length <= seq_len:
            return [1.0] * spectrum.count
        if given is None:
            return NTKByParts(factor=resolved_factor(self.factor, seq_len, length)).scaled(spectrum, seq_len, length)
        if len(given) != spectrum.count:
            raise UserError(f"longrope: a list has {len(given)} numbers, and the encoding {spectrum.count} pairs")
        return [1 / number for number in given]

    def logit_scale(self, seq_len: int, length: int) -> float:
        return 1.0 + math.log(max(1.0, resolved_factor(self.factor, seq_len, length))) / math.log(seq_len)

    def unfitted(self) -> bool:
        return self.search is not None

    def fitted(self, value: float) -> Self:
        return self._with(None)

    def _with(self, factors: Iterable[float] | None) -> Self:
        long = None if factors is None else ",".join(f"{factor:.4g}" for factor in factors)
        return type(self)(factor=self.factor, long=long, short=self.short)

    def most_tries(self, count: int) -> int:
        return self.search or 0

    def found(self, encoding: Encoding, seq_len: int, length: int, loss: Callable[[Self], float]) -> Self:
        try:  # not at the top of this module, which is also in exported models: these only need torch
            import numpy as np
            from scipy.optimize import differential_evolution
        except ImportError:
            raise UserError("longrope: search needs the scipy package: pip install 'extrapolate[search]'") from None
        spectrum = encoding.spectrum()
        assert spectrum is not None, "it accepts other frequencies"
        assert self.search is not None
        s = resolved_factor(self.factor, seq_len, length)
        derived = NTKByParts(factor=s).scaled(spectrum, seq_len, length)
        starts = [derived, [1 / s] * spectrum.count, ntk_factors(spectrum.count, s), [1.0] * spectrum.count]

        def factors(place_M: Iterable[float]) -> list[float]:
            return [(1 + s) ** place for place in sorted(place_M)]

        start_4M = -np.log(np.array(starts)) / math.log1p(s)
        noise_PM = np.random.default_rng(0).normal(0, DEVIATION, (POPULATION, spectrum.count))
        noise_PM[: len(starts)] = 0.0
        population_PM = np.clip(np.resize(start_4M, noise_PM.shape) + noise_PM, 0, 1)
        best = differential_evolution(
            lambda place_M: loss(self._with(factors(place_M))),
            [(0, 1)] * spectrum.count,
            init=population_PM,
            maxiter=self.search // POPULATION - 1,
            tol=-1.0,  # runs all generations, even if their losses have converged
            polish=False,
            seed=0,
        )
        return self._with(factors(best.x))


def _numbers(name: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise UserError(f"longrope: {name}={text} is not a list of positive numbers: {name}=(1,1.5,4,8)")
    return numbers
