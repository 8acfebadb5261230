"""TAPA: token-aware phase attention."""

import math

import torch
from torch import Tensor

from extrapolate.encodings.base import Context, Dims, Encoding, register, scaled_product
from extrapolate.errors import UserError


@register("tapa")
class TAPA(Encoding):
    """Multiplies each score by the cosine of a phase that grows with the distance, at a speed that content sets.

    score(i, j) = q_A k_A / sqrt(n) cos(2 pi r^alpha q_P k_P / sqrt(K - n)), with r = i - j, the first n channels of
    each head for the amplitude (A) and the others for the phase (P). Nothing is rotated, and nothing is learned.
    Beyond L: r^alpha grows slowly: 16 times the distance turns the phase 1.3 times as far, and a pair with q_P k_P = 0
    does not turn at all.

    Our reading: which channels belong to which part. The paper trains with a smaller learning rate than for RoPE.
    Arguments: amplitude, n / K (default 0.5); power, alpha (default 0.1).
    Source: Wang et al., arXiv 2509.12635.
    """

    display = "TAPA"
    source = "arXiv 2509.12635"
    family = "content-dependent"
    caption = (
        "TAPA: our reading of arXiv 2509.12635, which has no public code; which channels belong to which part is ours"
    )

    def __init__(self, dims: Dims, *, amplitude: float = 0.5, power: float = 0.1) -> None:
        super().__init__(dims)
        self.channels = round(amplitude * dims.head_dim)
        if not 0 < self.channels < dims.head_dim:
            raise UserError(
                f"tapa: amplitude must leave both parts some of the {dims.head_dim} channels, not {amplitude:g}"
            )
        if power <= 0:
            raise UserError(f"tapa: power must be more than 0, not {power:g}")
        self.amplitude = amplitude
        self.power = power

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        sizes = [self.channels, self.dims.head_dim - self.channels]
        (q_amplitude, q_phase), (k_amplitude, k_phase) = (x.split(sizes, dim=-1) for x in (q_BHTK, k_BHSK))
        with torch.autocast(q_BHTK.device.type, enabled=False):  # a phase is an angle
            speed_BHTS = scaled_product(q_phase.float(), k_phase.float())
        # Hidden keys have negative distances, whose powers are undefined.
        grown_TS = (context.pos_T[:, None] - context.pos_S).clamp(min=0) ** self.power
        phase_BHTS = 2 * math.pi * self.rounded(grown_TS) * speed_BHTS
        return scaled_product(q_amplitude, k_amplitude) * phase_BHTS.cos()
