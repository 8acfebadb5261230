"""A custom rotation that depends on content: each token decides how far its head turns."""

from typing import Any

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, Dims, Encoding


class Turning(Encoding):
    """Turns each pair of channels by the sum of angles that the tokens so far chose, one angle per head.

    Source: this file.
    """

    display = "Turning"
    source = "this file"
    accepts = frozenset({LOGITS})  # there are no positions to change

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.angle = nn.Linear(dims.width, dims.heads)

    def prepare(self, x_BTD: Tensor) -> Tensor:
        return self.angle(x_BTD).float().cumsum(dim=1).mT[..., None]  # [B, H, T, 1]

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        group = q_BHTK.shape[1] // k_BGSK.shape[1]  # query heads that share a key head turn together
        angle_BGT1 = state[:, ::group]
        return self._turned(q_BHTK, angle_BGT1.repeat_interleave(group, dim=1)), self._turned(k_BGSK, angle_BGT1)

    def _turned(self, x_BHTK: Tensor, angle_BHT1: Tensor) -> Tensor:
        a, b = x_BHTK.float().chunk(2, dim=-1)
        cos, sin = angle_BHT1.cos(), angle_BHT1.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x_BHTK.dtype)
