"""A custom layer without attention: every head keeps a mean of values that forgets."""

from typing import Any

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims, Encoding


class Fading(Encoding):
    """Replaces attention by a running mean: o_t = f_t o_(t-1) + (1 - f_t) v_t, with a gate f per head and token.

    Queries and keys are not used. Source: this file.
    """

    display = "Fading"
    source = "this file"
    accepts = frozenset()  # there are no scores, and no positions
    positional = False

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.gate = nn.Linear(dims.width, dims.heads)

    def prepare(self, x_BTD: Tensor) -> Tensor:
        return self.gate(x_BTD).float().sigmoid().mT  # [B, H, T]

    def mix(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, state: Any) -> Tensor:
        v_BHTK = v_BGTK.repeat_interleave(q_BHTK.shape[1] // v_BGTK.shape[1], dim=1)
        mean, means = torch.zeros_like(v_BHTK[:, :, 0], dtype=torch.float32), []
        for f, v in zip(state.unbind(2), v_BHTK.unbind(2), strict=True):
            mean = f[..., None] * mean + (1 - f[..., None]) * v
            means.append(mean)
        return torch.stack(means, dim=2).to(v_BHTK.dtype)
