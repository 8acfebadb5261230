"""A custom encoding: extrapolate train --pe examples/my_encoding.py:LogBias:strength=2 --seq-len 64"""

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding


class LogBias(Encoding):
    """Subtracts strength_h ln(1 + distance) from every score, so doubling the distance costs a constant.

    Arguments: strength of the last head (default 1); head h of H has strength h / H.
    Source: this file.
    """

    display = "LogBias"
    source = "this file"

    def __init__(self, dims: Dims, *, strength: float = 1.0) -> None:
        super().__init__(dims)
        self.strength = strength  # keep every argument under its name

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        heads = torch.arange(1, self.dims.heads + 1, device=pos_T.device) / self.dims.heads
        distance_TS = (pos_T[:, None] - pos_S[None, :]).clamp(min=0)
        return -self.strength * heads[:, None, None] * torch.log1p(distance_TS)
