"""A custom extension: extrapolate eval-lengths ckpt/mine --extend examples/my_extension.py:RootScale:factor=2"""

from extrapolate.encodings.base import POSITIONS, Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.extensions.base import Extension


class RootScale(Extension):
    """Divides every position by the square root of a factor, a milder form of position interpolation.

    Arguments: factor, a ratio (default: N/L, at least 1).
    Source: this file.
    """

    display = "RootScale"
    source = "this file"
    slot = "positions"
    needs = POSITIONS

    def __init__(self, *, factor: float | None = None) -> None:
        self.factor = factor  # keep every argument under its name

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        factor = max(1.0, length / seq_len) if self.factor is None else self.factor
        return Plan(position_scale=factor**-0.5)
