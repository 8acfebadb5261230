"""Randomised positions, around any encoding that has positions."""

from typing import Literal

import torch
from torch import Tensor

from extrapolate.encodings.base import DISTANCES, LOGITS, Dims, register
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.training_positions import TrainingPositions


@register("random")
class Random(TrainingPositions):
    """Trains with positions drawn from a range longer than any that will be tested.

    At each training step, T distinct whole numbers are drawn from 0..max-1, sorted, and used as the positions of the
    whole batch in every layer. The base is built as if the training length were max. Beyond L: up to max tokens, every
    position lies in the range used in training; longer windows are reported n/a.

    At evaluation, the argument evaluate decides: "sample" also draws positions, as the authors' code does, with a fixed
    seed per length so that results can be repeated; "spread" uses floor(i max / N), and "first" uses 0..N-1, which
    leaves extensions of positions and frequencies their meaning. Randomized YaRN (arXiv 2606.23687) is "first" with a
    curriculum in a run that continues another with yarn: train --from RUN --pe
    "random:evaluate=first,max=1024,curriculum=0.6" --extend yarn:factor=16. At test its authors also use a larger
    factor than in training, which is missing here: the extension of a run keeps its arguments.

    Arguments: base, a spec, in parentheses if it has arguments; max, in tokens (default 32 L); evaluate, as above;
    curriculum, the share of training over which the range grows linearly from L to max (default 0: it is max from the
    first step). Source: Ruoss et al., arXiv 2305.16843.
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
        curriculum: float = 0.0,
    ) -> None:
        super().__init__(dims, "random", base, 32 * dims.seq_len if max is None else max, curriculum)
        self.evaluate = evaluate
        self.max_length = min(self.max, self.inner.max_length or self.max)
        # What changes positions is made for those up to L, not max; pairs are placed by index, in training too.
        self.accepts &= self.inner.accepts - {DISTANCES} if evaluate == "first" else {LOGITS}

    def positions(self, index_T: Tensor) -> Tensor:
        length = len(index_T)
        if not self.training and self.evaluate == "first":
            return index_T
        if not self.training and self.evaluate == "spread":
            return (index_T.double() * self.max / length).floor().to(index_T)  # float32 would round the product
        # Drawn on the CPU: a seed then gives the same positions on every device.
        generator = None if self.training else torch.Generator().manual_seed(length)
        drawn = torch.randperm(self.max, generator=generator)
        if self.training and self.curriculum:  # those in the range first, in the order in which they were drawn
            drawn = drawn[(drawn >= self.reach(length)).argsort(stable=True)]
        return drawn[:length].sort().values.to(index_T, non_blocking=True)

    def defined_at(self, length: int, plan: Plan) -> bool:
        return length <= min(self.max, self.inner.max_length or self.max)
