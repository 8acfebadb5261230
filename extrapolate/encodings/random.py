"""Randomised positions, around any encoding that has positions."""

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from extrapolate.encodings.base import LOGITS, Dims, register
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.wrapper import Wrapper
from extrapolate.errors import UserError

LARGEST = 2**24  # positions: they are float32


@register("random")
class Random(Wrapper):
    """Trains with positions drawn from a range longer than any that will be tested.

    At each training step, T distinct whole numbers are drawn from 0..max-1, sorted, and used as the positions of the
    whole batch in every layer. The base is built as if the training length were max. Beyond L: up to max tokens, every
    position lies in the range used in training; longer windows are reported n/a.

    At evaluation, the argument evaluate decides: "sample" also draws positions, as the authors' code does, with a fixed
    seed per length so that results can be repeated; "spread" uses floor(i max / N), and "first" uses 0..N-1. Arguments:
    base, a spec, in parentheses if it has arguments; max, in tokens (default 32 L); evaluate, as above. Source: Ruoss
    et al., arXiv 2305.16843.
    """

    display = "Random"
    source = "arXiv 2305.16843"

    def __init__(
        self,
        dims: Dims,
        *,
        base: str = "rope",
        max: int | None = None,
        evaluate: Literal["sample", "spread", "first"] = "sample",
    ) -> None:
        self_max = 32 * dims.seq_len if max is None else max
        if self_max < dims.seq_len:
            raise UserError(f"random: max must be at least the training length {dims.seq_len}, not {self_max}")
        if self_max > LARGEST:
            raise UserError(
                f"random: max must be at most {LARGEST}, for float32 tells no larger whole positions apart, and is "
                f"{self_max}"
            )
        super().__init__(dims, base, dataclasses.replace(dims, seq_len=self_max))
        if not self.inner.positional:
            raise UserError(f"random means nothing for {self.inner.display}: it has no positions")
        self.max = self_max
        self.evaluate = evaluate
        self.max_length = min(self.max, self.inner.max_length or self.max)
        self.accepts = frozenset({LOGITS})  # what changes positions is made for those up to L, not max

    def positions(self, index_T: Tensor) -> Tensor:
        length = len(index_T)
        if not self.training and self.evaluate == "first":
            return index_T
        if not self.training and self.evaluate == "spread":
            return (index_T.double() * self.max / length).floor().to(index_T)  # float32 would round the product
        # Drawn on the CPU: a seed then gives the same positions on every device.
        generator = None if self.training else torch.Generator().manual_seed(length)
        drawn = torch.randperm(self.max, generator=generator)[:length]
        return drawn.sort().values.to(index_T, non_blocking=True)

    def defined_at(self, length: int, plan: Plan) -> bool:
        return length <= min(self.max, self.inner.max_length or self.max)
