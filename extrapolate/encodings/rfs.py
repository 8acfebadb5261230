"""Random Float Sampling, around any encoding that has positions."""

import torch
from torch import Tensor

from extrapolate.encodings.base import LOGITS, Dims, register
from extrapolate.encodings.training_positions import TrainingPositions
from extrapolate.errors import UserError


@register("rfs")
class RandomFloats(TrainingPositions):
    """Trains with fractional positions drawn from a fixed range, over which any longer window is spread evenly.

    At each training step, T numbers are drawn uniformly from [0, 1), sorted, multiplied by max, and used as the
    positions of the whole batch in every layer. At evaluation token i of N, counted from 0, has position
    max (2i + 1) / (2 n), n = max(L, N). Beyond L: every position lies in the range used in training, and neighbours are
    closer, as if by interpolation.

    Our reading: the paper's positions lie in [0, 1), and how far that is in an encoding's own positions, thus in
    angles and slopes, was not found. Here it is L, so that neighbours are 1 apart in windows of up to L tokens, as
    without it. The base is built as if the training length were max; a table of positions is refused.

    Arguments: base, a spec, in parentheses if it has arguments; max, the length of the range in tokens (default L);
    curriculum, the share of training over which the range grows linearly from L to max (default 0: it is max from the
    first step). Source: Shimizu et al., arXiv 2602.14050.
    """

    display = "RFS"
    source = "arXiv 2602.14050"
    whole = False

    def __init__(self, dims: Dims, *, base: str = "rope", max: int | None = None, curriculum: float = 0.0) -> None:
        super().__init__(dims, "rfs", base, dims.seq_len if max is None else max, curriculum)
        if self.inner.max_length is not None:
            raise UserError(f"rfs does not apply to {self.inner.display}: it has no positions between whole ones")
        own = "RFS: our reading of arXiv 2602.14050, whose scale of positions is not known"
        self.caption = "; ".join(filter(None, (own, self.inner.caption)))
        self.accepts &= {LOGITS}  # no position is beyond those of training

    def positions(self, index_T: Tensor) -> Tensor:
        length = len(index_T)
        if not self.training:
            share_T = (index_T.double() + 0.5) / max(length, self.dims.seq_len)
            return (share_T * self.max).to(index_T)
        # Drawn on the CPU: a seed then gives the same positions on every device.
        share_T = torch.rand(length, dtype=torch.float64).sort().values
        return (share_T * self.reach(length)).to(index_T, non_blocking=True)
