"""A custom rotation that depends on content: each token decides how far the pairs of channels turn."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, Dims, Encoding


class Turning(Encoding):
    """Turns each pair of channels by the sum of the angles that the tokens so far chose. Source: this file."""

    display = "Turning"
    source = "this file"
    accepts = frozenset({LOGITS})  # there are no positions to change

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.angle = nn.Linear(dims.width, dims.head_dim // 2)

    def prepare(self, x_BTD: Tensor) -> Tensor:
        return self.angle(x_BTD).float().cumsum(dim=1)[:, None]  # [B, 1, T, K/2]: the same for all heads

    def rotate(self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._turned(x, state.cos(), state.sin()) for x in (q_BHTK, k_BGSK))

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)
