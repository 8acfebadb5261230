"""xPos: rotary embedding with a decay."""

import math
from typing import Any

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, register
from extrapolate.encodings.rope import RoPE, turn
from extrapolate.errors import UserError

# Scores of hidden pairs grow to at most e^80; float32 ends at e^88.
EXPONENT = 80.0


@register("xpos")
class XPos(RoPE):
    """Rotates pairs as RoPE does and shrinks their product with the distance, that of the fast pairs most.

    Queries are multiplied by zeta_m^(i/S) and keys by zeta_m^(-j/S), zeta_m = (2m/K + gamma) / (1 + gamma), so that
    pair m of a score carries zeta_m^((i-j)/S) <= 1. Pairs are (2m, 2m + 1). Positions are counted from the middle of
    the window, which halves the exponents and changes no score.
    Beyond L: far keys fade; the paper adds a window of two blocks at inference. Powers leave float32's range at 64 S,
    so longer windows are reported n/a.

    Arguments: scale_base, S in tokens (default: L; the paper uses 512); gamma; theta, the base.
    Source: Sun et al., arXiv 2212.10554.
    """

    display = "xPos"
    source = "arXiv 2212.10554"

    def __init__(
        self, dims: Dims, *, scale_base: float | None = None, gamma: float = 0.4, theta: float = 10_000.0
    ) -> None:
        super().__init__(dims, theta=theta, pairing="interleaved")
        self.scale_base = float(dims.seq_len) if scale_base is None else scale_base
        self.gamma = gamma
        if self.scale_base <= 0 or gamma <= 0:
            raise UserError(f"xpos: scale_base and gamma must be positive, not {self.scale_base:g} and {gamma:g}")
        self.max_length = int(EXPONENT * self.scale_base / math.log((1 + gamma) / gamma))

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        frequencies = self.scaled_frequencies(pos_T.device)
        middle = (pos_S.min() + pos_S.max()) / 2
        step_M = (torch.arange(0, self.dims.head_dim, 2, device=pos_T.device) / self.dims.head_dim + self.gamma) / (
            1 + self.gamma
        )
        scale_TM = step_M ** ((pos_T - middle) / self.scale_base)[:, None]
        scale_SM = step_M ** ((middle - pos_S) / self.scale_base)[:, None]
        cos_TM, sin_TM = turn(pos_T, frequencies)
        cos_SM, sin_SM = turn(pos_S, frequencies)
        return (
            self.rotated(q_BHTK, self.rounded(cos_TM * scale_TM), self.rounded(sin_TM * scale_TM)),
            self.rotated(k_BGSK, self.rounded(cos_SM * scale_SM), self.rounded(sin_SM * scale_SM)),
        )
