"""A custom layer without attention: every head keeps a mean of values that forgets."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims, Encoding


class Fading(Encoding):
    """o_t = f_t o_(t-1) + (1 - f_t) v_t, with a gate f per head and token. Source: this file."""

    display = "Fading"
    source = "this file"
    accepts = frozenset()  # there are no scores, and no positions
    positional = False

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.gate = nn.Linear(dims.width, dims.heads)

    def prepare(self, x_BTD: Tensor) -> Tensor:
        return self.gate(x_BTD).float().sigmoid().mT[..., None]  # [B, H, T, 1]

    def mix(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, state: Tensor) -> Tensor:
        v_BHTK = v_BGTK.repeat_interleave(q_BHTK.shape[1] // v_BGTK.shape[1], dim=1)
        means = [torch.zeros_like(v_BHTK[:, :, 0], dtype=torch.float32)]
        for f, v in zip(state.unbind(2), v_BHTK.unbind(2), strict=True):
            means.append(f * means[-1] + (1 - f) * v)
        return torch.stack(means[1:], dim=2).to(v_BHTK.dtype)
