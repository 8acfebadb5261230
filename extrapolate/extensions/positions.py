"""Positions, or values made from them, scaled back into the trained range."""

from typing import Literal

from extrapolate.encodings.base import POSITIONS, TABLE, VALUES, Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, register


def check_factor(name: str, factor: float | None) -> None:
    """Raises UserError if a given factor is not positive."""
    if factor is not None and not factor > 0:
        raise UserError(f"{name}: factor must be a positive number, not {factor:g}")


def resolved_factor(factor: float | None, seq_len: int, length: int) -> float:
    """The given factor, or N/L for this length, at least 1."""
    return max(1.0, length / seq_len) if factor is None else factor


@register("pi")
class PositionInterpolation(Extension):
    """Divides every position by a factor: position i is presented as i / factor.

    No position leaves the trained range as long as factor >= N/L, but neighbours are closer than they ever were in
    training, which raises the loss within L somewhat. Sinusoidal encodings are evaluated at the fractional positions.

    Arguments: factor, a ratio (default: N/L, at least 1).
    Source: Chen et al., arXiv 2306.15595.
    """

    display = "PI"
    source = "arXiv 2306.15595"
    slot = "positions"
    needs = POSITIONS

    def __init__(self, *, factor: float | None = None) -> None:
        check_factor("pi", factor)
        self.factor = factor

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        return Plan(position_scale=1.0 / resolved_factor(self.factor, seq_len, length))


@register("expe-scale")
class ExPEScale(Extension):
    """Multiplies what ExPE writes by a factor, as the paper's models are "scaled by half" at inference.

    Our reading: the paper allows two. Either the values themselves are scaled, factor (start + step n + slope c), or
    only the positions, start + step factor n + slope c, which is pi.

    Arguments: factor, a ratio (default: L/N, at most 1; the paper uses 0.5); reading, "values" or "positions".
    Source: Datseris et al., arXiv 2509.19569.
    """

    display = "Scale"
    source = "arXiv 2509.19569"
    needs = VALUES

    def __init__(self, *, factor: float | None = None, reading: Literal["values", "positions"] = "values") -> None:
        check_factor("expe-scale", factor)
        self.factor = factor
        self.reading = reading
        self.slot = reading

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        factor = min(1.0, seq_len / length) if self.factor is None else self.factor
        return Plan(value_scale=factor) if self.reading == "values" else Plan(position_scale=factor)


@register("table-resize")
class TableResize(Extension):
    """Stretches a learned table of L positions over N by linear interpolation between its rows.

    Position i of N reads the table at i (L-1)/(N-1), so both ends stay where they are (align-corners). Windows of at
    most L tokens are left alone. Without fine-tuning it is not expected to do well.

    Source: the resizing of tables in Dosovitskiy et al., arXiv 2010.11929, in one dimension.
    """

    display = "Resize"
    source = "arXiv 2010.11929"
    slot = "positions"
    needs = TABLE

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        rows = encoding.max_length or seq_len
        return Plan(position_scale=(rows - 1) / (length - 1) if length > rows else 1.0)
