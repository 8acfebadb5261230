"""Positions squeezed back into the trained range."""

from extrapolate.encodings.base import POSITIONS, VALUES
from extrapolate.extensions.base import Extension, Plan, register


def _check_positive(name: str, factor: float | None) -> None:
    if factor is not None and not factor > 0:
        raise ValueError(f"{name}: factor must be a positive number, not {factor:g}")


@register("pi")
class PositionInterpolation(Extension):
    """Divides every position by a factor: position i is presented as i / factor.

    Neighbours move closer than they ever were in training, which costs some loss in range, and no position
    leaves the trained range as long as factor >= N/L.

    Arguments: factor, a ratio (default: N/L, computed afresh for each evaluation length, at least 1).
    Source: Chen et al., arXiv 2306.15595.
    """

    display = "PI"
    source = "arXiv 2306.15595"
    needs = POSITIONS

    def __init__(self, *, factor: float | None = None) -> None:
        _check_positive("pi", factor)
        self.factor = factor

    def plan(self, seq_len: int, length: int) -> Plan:
        factor = max(1.0, length / seq_len) if self.factor is None else self.factor
        return Plan(position_scale=1.0 / factor)


@register("expe-scale")
class ExPEScale(Extension):
    """Multiplies the values that ExPE writes by a factor, as the paper's models "scaled by half" at inference.

    Our reading: the values themselves, factor (start + step n + slope c). The other reading, positions multiplied
    and start kept, is `pi`.

    Arguments: factor, a ratio (default: L/N, computed afresh for each evaluation length, at most 1; the paper
    uses 0.5).
    Source: Datseris et al., arXiv 2509.19569.
    """

    display = "Scale"
    source = "arXiv 2509.19569"
    needs = VALUES

    def __init__(self, *, factor: float | None = None) -> None:
        _check_positive("expe-scale", factor)
        self.factor = factor

    def plan(self, seq_len: int, length: int) -> Plan:
        return Plan(value_scale=min(1.0, seq_len / length) if self.factor is None else self.factor)
