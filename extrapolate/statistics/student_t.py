"""Student's t distribution."""

import math
from functools import lru_cache
from statistics import NormalDist

_STEPS = 100  # far more than Newton's method needs


def beyond(t: float, freedom: int) -> float:
    """The probability of a value above t >= 0 with `freedom` degrees of freedom.

    Uses finite sums (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4), accurate to about 1e-15.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    total, term = 0.0, cosine if odd else 1.0
    for k in range(odd + 2, freedom + 1, 2):  # terms are cos^(k - 2) times the ratios so far
        total += term
        term *= (k - 1) / k * cosine**2
    within = (angle + sine * total) * 2 / math.pi if odd else sine * total
    return (1 - within) / 2


def quantile(above: float, freedom: float) -> float:
    """The value exceeded with probability `above`, from 1e-12 to 0.5. freedom: 1 or more.

    Between whole degrees of freedom, logarithms are interpolated over 1 / freedom; the result is at most 4 % too large,
    and never too small.
    """
    below = math.floor(freedom)
    low = _quantile(above, below)
    if below == freedom or above >= 0.5:
        return low
    share = (1 / below - 1 / freedom) / (1 / below - 1 / (below + 1))
    return low ** (1 - share) * _quantile(above, below + 1) ** share


@lru_cache(maxsize=4096)
def _quantile(above: float, freedom: int) -> float:
    if above >= 0.5:
        return 0.0
    if freedom == 1:
        return 1 / math.tan(math.pi * above)
    t = -NormalDist().inv_cdf(above)  # a lower bound
    density = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    for _ in range(_STEPS):  # Newton's method on logarithms, in which a heavy tail is a straight line
        beyond_t = beyond(t, freedom)
        slope = t * density * (1 + t * t / freedom) ** (-(freedom + 1) / 2) / beyond_t
        factor = math.exp(math.log(beyond_t / above) / slope)
        t *= factor
        if abs(factor - 1) < 1e-12:
            break
    return t
