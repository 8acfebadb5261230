"""The base of encodings whose windows have other positions in training than in evaluation."""

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims
from extrapolate.encodings.wrapper import Wrapper
from extrapolate.errors import UserError

LARGEST = 2**24  # positions: they are float32


class TrainingPositions(Wrapper):
    """Draws the positions of training windows from a range of `max`, which a curriculum may widen step by step.

    With a curriculum c, a share of training, the range of windows of T tokens grows linearly from T to max over that
    share; c = 0 keeps it at max. Evaluation does not depend on it, whenever it takes place.
    """

    whole: ClassVar[bool] = True  # whether positions are whole numbers, so that a window needs a range of its length

    def __init__(self, dims: Dims, name: str, base: str, max: int, curriculum: float) -> None:
        if self.whole and max < dims.seq_len:
            raise UserError(f"{name}: max must be at least the training length {dims.seq_len}, not {max}")
        if max < 1:
            raise UserError(f"{name}: max must be at least 1, not {max}")
        if max > LARGEST:
            raise UserError(
                f"{name}: max must be at most {LARGEST}, not {max}: float32 cannot tell larger whole positions apart"
            )
        if not 0 <= curriculum <= 1:
            raise UserError(f"{name}: curriculum must be a share of training, 0 to 1, not {curriculum:g}")
        if curriculum and max <= dims.seq_len:
            raise UserError(
                f"{name}: curriculum={curriculum:g} widens the range from the training length to max, which must be "
                f"above {dims.seq_len}, not {max}"
            )
        super().__init__(dims, base, dataclasses.replace(dims, seq_len=max))
        if not self.inner.positional:
            raise UserError(f"{name} does not apply to {self.inner.display}: it has no positions")
        self.max = max
        self.curriculum = curriculum
        # The open share of the range, 0 to 1. A tensor, because compiled code treats numbers as constants; no buffer,
        # because it follows from the step and is not saved. Copies of the encoding share it. It stays on the CPU.
        self.opened = torch.ones((), dtype=torch.float64)

    def begin_step(self, done: float) -> None:
        super().begin_step(done)
        self.opened.fill_(min(1.0, done / self.curriculum) if self.curriculum else 1.0)

    def reach(self, length: int) -> Tensor:
        """The end of the range for training windows of `length` tokens at this step: a float64 on the CPU."""
        start = min(length, self.max)
        return start + self.opened * (self.max - start)
