"""PoPE: polar coordinate position embedding."""

import math
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import FREQUENCIES, RELATIVE, Dims, Encoding, Rotations, Spectrum, register
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.rope import scaled
from extrapolate.errors import UserError


@register("pope")
class PoPE(Encoding):
    """Turns every channel into a length and an angle: content sets the length, position the angle.

    score(i, j) = sum_c softplus(q_c) softplus(k_c) cos((i - j) w_c - delta_hc) / sqrt(K), w_c = theta^(-c/K), c =
    0..K-1, so there are as many frequencies as channels, twice RoPE's number. delta, one per head and channel, is
    learned and kept within -2 pi..0. The score is computed as a product of queries and keys twice as wide. Because of
    softplus, queries and keys start larger than with other encodings, which has nothing to do with position.
    Beyond L: slow channels reach angles never seen, but content no longer moves the angle, and the paper reports that
    this extrapolates.

    Arguments: theta, the base; delta, how it starts: "zero", or "uniform" over -2 pi..0.
    Source: Gopalakrishnan et al., arXiv 2509.10534.
    """

    display = "PoPE"
    source = "arXiv 2509.10534"
    family = "rotary"
    caption = "PoPE: queries and keys are larger at the start than with other encodings, as softplus makes them"
    rescales = frozenset({"rotate"})
    accepts = RELATIVE | {FREQUENCIES}

    def __init__(self, dims: Dims, *, theta: float = 10_000.0, delta: Literal["zero", "uniform"] = "zero") -> None:
        super().__init__(dims)
        if theta <= 1:
            raise UserError(f"pope: theta must be more than 1, not {theta:g}")
        self.theta = theta
        self.delta = delta
        self.frequency_scale: tuple[float, ...] = ()
        start = torch.zeros(dims.heads, dims.head_dim)
        self.delta_HK = nn.Parameter(start if delta == "zero" else start.uniform_(-2 * math.pi, 0))

    def frequencies(self, device: torch.device) -> Tensor:
        """w_c in radians per token, [K], float32, fastest first."""
        return self.theta ** (-torch.arange(self.dims.head_dim, device=device) / self.dims.head_dim)

    def spectrum(self) -> Spectrum:
        return Spectrum(self.theta, self.dims.head_dim)

    def rotations(self) -> Rotations | None:
        frequency_K = scaled(self.frequencies(torch.device("cpu")), self.frequency_scale)
        return Rotations(frequency_K, torch.arange(2 * len(frequency_K)).view(2, -1).T)

    def extended(self, plan: Plan) -> Self:
        return super().extended(plan).copy_with(frequency_scale=plan.frequency_scale)

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        frequencies = scaled(self.frequencies(pos_T.device), self.frequency_scale)
        # The angle of a query holds delta: keys may be shared by several heads. sqrt(2) makes up for the width,
        # which the product is scaled by.
        delta_HK = self.delta_HK.clamp(-2 * math.pi, 0)
        angle_HTK = torch.outer(pos_T, frequencies) - delta_HK[:, None]
        angle_SK = torch.outer(pos_S, frequencies)
        q_BHTK = self._polar(2**0.5 * nn.functional.softplus(q_BHTK.float()), angle_HTK).to(q_BHTK.dtype)
        return q_BHTK, self._polar(nn.functional.softplus(k_BGSK.float()), angle_SK).to(k_BGSK.dtype)

    def _polar(self, length: Tensor, angle: Tensor) -> Tensor:
        return torch.cat([length * self.rounded(angle.cos()), length * self.rounded(angle.sin())], dim=-1)
