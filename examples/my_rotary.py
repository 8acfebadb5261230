"""A custom rotary encoding, to which YaRN and the other frequency extensions apply."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import FREQUENCIES, RELATIVE, Dims, Encoding, Spectrum
from extrapolate.encodings.plan import Plan


class PhaseRoPE(Encoding):
    """RoPE whose keys are turned by an additional learned angle per pair of channels, which starts at 0.

    Arguments: theta, the base (default 10,000).
    Source: this file.
    """

    display = "PhaseRoPE"
    source = "this file"
    accepts = RELATIVE | {FREQUENCIES}
    frequency_scale: tuple[float, ...] = ()  # a factor per frequency; empty: unchanged

    def __init__(self, dims: Dims, *, theta: float = 10_000.0) -> None:
        super().__init__(dims)
        self.theta = theta
        self.phase_M = nn.Parameter(torch.zeros(dims.head_dim // 2))

    def spectrum(self) -> Spectrum:
        return Spectrum(self.theta, self.dims.head_dim // 2)

    def extended(self, plan: Plan) -> Self:
        return super().extended(plan).copy_with(frequency_scale=plan.frequency_scale)

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        count = self.dims.head_dim // 2
        frequencies = self.theta ** (-torch.arange(count, device=pos_T.device) / count)
        if self.frequency_scale:
            frequencies = frequencies * torch.tensor(self.frequency_scale, device=pos_T.device)
        angle_TM, angle_SM = torch.outer(pos_T, frequencies), torch.outer(pos_S, frequencies) + self.phase_M
        return self._turned(q_BHTK, angle_TM), self._turned(k_BGSK, angle_SM)

    def _turned(self, x_BHTK: Tensor, angle_TM: Tensor) -> Tensor:
        cos_TM, sin_TM = self.rounded(angle_TM.cos()), self.rounded(angle_TM.sin())
        a, b = x_BHTK.float().chunk(2, dim=-1)  # channels m and m + K/2 are a pair
        return torch.cat([a * cos_TM - b * sin_TM, b * cos_TM + a * sin_TM], dim=-1).to(x_BHTK.dtype)
