"""FoPE: Fourier position embedding."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims, Rotations, register
from extrapolate.encodings.rope import RoPE, complete_pairs, turn
from extrapolate.errors import UserError


@register("fope")
class FoPE(RoPE):
    """Gives each rotated pair a mixture of frequencies, and drops frequencies that complete no turn within L.

    Only the n frequencies w_m = theta^(-2m/K) with w_m >= 2 pi / L are kept. The first C = min(n, K/4) pairs are
    multiplied as in RoPE, but with sums in place of the cosine and the sine: for pair c, cos_c(i) = sum_m A[m, c] cos(i
    w_m) and sin_c(i) = sum_m B[m, c] sin(i w_m). The other pairs are not rotated. Each head has its own A and B of C
    columns, with a 1 in row c ceil(n / C) of column c, if that row exists. To all entries, noise of standard deviation
    gain sqrt(2 / (C (n + H))) is added, drawn once and not trained. This is no rotation: norms change.
    Beyond L: every frequency has been seen through a whole turn.

    The authors' code pads the sine of the unrotated pairs with 1 rather than our 0, which only doubles their products.
    Arguments: kept, n in pairs (default: as many as complete a turn within L); gain of the noise (default 0.3, as in
    the authors' smallest models); theta, the base.
    Source: Hua et al., arXiv 2412.17739.
    """

    display = "FoPE"
    source = "arXiv 2412.17739"
    shared_by_layers = ("cos_HMC", "sin_HMC")

    cos_HMC: Tensor
    sin_HMC: Tensor

    def __init__(self, dims: Dims, *, gain: float = 0.3, kept: int | None = None, theta: float = 10_000.0) -> None:
        super().__init__(dims, theta=theta)
        if gain < 0:
            raise UserError(f"fope: gain must not be negative, not {gain:g}")
        self.gain = gain
        self.kept = complete_pairs(self, dims.seq_len) if kept is None else kept
        if not 1 <= self.kept <= dims.head_dim // 2:
            raise UserError(f"fope: kept must be between 1 and {dims.head_dim // 2} pairs, not {self.kept}")
        columns = min(self.kept, max(1, dims.head_dim // 4))
        stride = math.ceil(self.kept / columns)
        chosen = torch.arange(math.ceil(self.kept / stride))  # at most `columns` of them
        for name in self.shared_by_layers:
            mix_HMC = torch.empty(dims.heads, self.kept, columns)
            nn.init.xavier_normal_(mix_HMC, gain=gain)
            mix_HMC[:, chosen * stride, chosen] += 1.0
            self.register_buffer(name, mix_HMC)

    def rotations(self) -> Rotations | None:
        return None  # a pair has several frequencies

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        heads, groups = q_BHTK.shape[1], k_BGSK.shape[1]
        group_H = torch.arange(groups, device=pos_T.device).repeat_interleave(heads // groups)  # as its keys' table
        tables_T = self._tables(pos_T)
        tables_S = tables_T if pos_S is pos_T else self._tables(pos_S)
        rotated_q = self.rotated(q_BHTK, *(table[group_H] for table in tables_T))
        return rotated_q, self.rotated(k_BGSK, *(table[:groups] for table in tables_S))

    def _tables(self, pos_T: Tensor) -> tuple[Tensor, Tensor]:
        """What stands for cosine and sine, [H, T, K/2]."""
        cos_TM, sin_TM = turn(pos_T, self.scaled_frequencies(pos_T.device)[: self.kept])
        with torch.autocast(pos_T.device.type, enabled=False):
            mixed_cos, mixed_sin = self.rounded(cos_TM @ self.cos_HMC), self.rounded(sin_TM @ self.sin_HMC)
        still = self.dims.head_dim // 2 - mixed_cos.shape[-1]
        return nn.functional.pad(mixed_cos, (0, still), value=1.0), nn.functional.pad(mixed_sin, (0, still))
