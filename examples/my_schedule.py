"""A custom bias with a schedule: the penalty on distance is switched on during the first half of the training."""

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding


class Rising(Encoding):
    """Subtracts the distance divided by L from each score, times a share that rises from 0 to 1. Source: this file."""

    display = "Rising"
    source = "this file"

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.part = torch.ones(())  # a trained model has all of the penalty

    def begin_step(self, done: float) -> None:
        self.part.fill_(min(1.0, 2 * done))

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        distance_TS = (pos_T[:, None] - pos_S[None, :]).clamp(min=0)
        return -self.part.to(distance_TS.device) * distance_TS[None] / self.dims.seq_len
