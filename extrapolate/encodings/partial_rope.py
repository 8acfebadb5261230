"""Partial RoPE: only the first channels of a head are rotated."""

from typing import Literal

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Spectrum, register
from extrapolate.encodings.rope import RoPE, geometric
from extrapolate.errors import UserError


@register("partial-rope")
class PartialRoPE(RoPE):
    """Rotates only the first R = floor(fraction K) channels of queries and keys.

    The frequencies are spread over the rotated channels: w_m = theta^(-2m/R), m = 0..R/2-1. They cover the whole range
    from 1 to about 1/theta, but more coarsely, whereas p-rope keeps RoPE's spacing and cuts off the slow end.
    Beyond L: the slow pairs that remain reach angles never seen, as in RoPE.

    Arguments: fraction of the channels (default 0.25, as in GPT-NeoX); theta and pairing, as for rope, within the
    rotated channels.
    Source: rotary_pct of GPT-NeoX, arXiv 2204.06745.
    """

    display = "Partial RoPE"
    source = "arXiv 2204.06745"

    def __init__(
        self,
        dims: Dims,
        *,
        fraction: float = 0.25,
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        self.fraction = fraction
        self.channels = int(fraction * dims.head_dim)
        if not 0 <= fraction <= 1 or self.channels % 2 or (fraction > 0 and not self.channels):
            raise UserError(
                f"partial-rope: fraction of {dims.head_dim} channels must be an even number of them, "
                f"and {fraction:g} makes {self.channels}"
            )

    def frequencies(self, device: torch.device) -> Tensor:
        return geometric(self.theta, self.channels, device)

    def spectrum(self) -> Spectrum:
        return Spectrum(self.theta, self.channels // 2)

    def rotated(self, x_BHTK: Tensor, cos_TM: Tensor, sin_TM: Tensor) -> Tensor:
        turned, rest = x_BHTK.split([self.channels, x_BHTK.shape[-1] - self.channels], dim=-1)
        return torch.cat([super().rotated(turned, cos_TM, sin_TM), rest], dim=-1)
