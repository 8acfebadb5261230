"""Sinusoids added to the embedding, as in the first transformer."""

import torch
from torch import Tensor

from extrapolate.encodings.base import EMBEDDED, LOGITS, POSITIONS, Dims, Encoding, register
from extrapolate.errors import UserError


@register("sinusoidal")
class Sinusoidal(Encoding):
    """Adds the sine and cosine of the position at D/2 frequencies to the token embedding.

    PE(i, 2m) = sin(i u_m), PE(i, 2m+1) = cos(i u_m), u_m = theta^(-2m/D), m = 0..D/2-1. The paper multiplies token
    embeddings by sqrt(D) first, to a standard deviation of 1. Here token embeddings start with 0.5, for every encoding,
    and the sinusoids are halved to keep the paper's proportion.
    Beyond L: defined everywhere, but the combinations of phases are new, and the loss rises within tens of tokens.

    Arguments: theta, the base of the wavelengths.
    Source: Vaswani et al., arXiv 1706.03762.
    """

    display = "Sinusoidal"
    source = "arXiv 1706.03762"
    family = "absolute"
    accepts = frozenset({POSITIONS, LOGITS})

    def __init__(self, dims: Dims, *, theta: float = 10_000.0) -> None:
        super().__init__(dims)
        if dims.width % 2:
            raise UserError(f"sinusoidal needs an even width, not {dims.width}")
        if theta <= 0:
            raise UserError(f"sinusoidal: theta must be positive, not {theta:g}")
        self.theta = theta

    def values(self, pos_T: Tensor) -> Tensor:
        """PE, [T, D], float32."""
        frequencies = self.theta ** (-torch.arange(0, self.dims.width, 2, device=pos_T.device) / self.dims.width)
        angle_TM = torch.outer(pos_T, frequencies)
        return torch.stack([angle_TM.sin(), angle_TM.cos()], dim=-1).flatten(-2)

    def embed(self, x_BTD: Tensor, pos_T: Tensor) -> Tensor:
        return x_BTD + self.rounded(EMBEDDED * self.values(pos_T))
