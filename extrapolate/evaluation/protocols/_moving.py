"""The stride of protocols whose windows move along a text."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extrapolate import specs
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import Layout, Protocol, Windows


@dataclass(frozen=True, kw_only=True)
class Moving(Protocol):
    """Windows that move on by `stride` tokens (default: the protocol's own choice for the training length)."""

    stride: int | None = None

    def __post_init__(self) -> None:
        if self.stride is not None and self.stride < 1:
            raise UserError(f"`stride` must be at least 1, not {specs.shown(self.stride)}")

    def stride_at(self, seq_len: int) -> int:
        return self.stride or self.usual_stride(seq_len)

    @staticmethod
    @abstractmethod
    def usual_stride(seq_len: int) -> int:
        """The default stride, tokens."""

    def check_stride(self, seq_len: int, lengths: Sequence[int], most: int) -> None:
        """Raises UserError if windows would skip tokens: the shortest can move on by `most`."""
        stride, shortest = self.stride_at(seq_len), min(lengths)
        if most < 1:
            raise UserError(f"{self.name} needs windows of more than {shortest} tokens: use longer `factors`")
        if stride > most:
            raise UserError(
                f"{self.name} moves its windows on by {stride} tokens: an evaluation length of {shortest} is too "
                f"short; use longer `factors`, or a `stride` of at most {most}"
            )

    def laid(self, seq_len: int, lengths: Sequence[int], windows: Callable[[int, int], tuple[Windows, ...]]) -> Layout:
        """The layout with `windows(length, stride)` for every length.

        The control moves on by at most L/2, so that nearly every target has more than L/2 tokens of context. At 1x, a
        row is its own control if their strides are equal.
        """
        stride = self.stride_at(seq_len)
        back = min(stride, max(1, seq_len // 2))
        rows = {length: windows(length, stride) for length in lengths}
        same = rows.get(seq_len) if back == stride else None
        return Layout(rows, same or windows(seq_len, back))
