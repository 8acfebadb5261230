"""Scale-invariant attention."""

from typing import Literal

import torch
from torch import Tensor

from extrapolate.encodings.base import Context, Dims, register, scaled_product
from extrapolate.encodings.rope import RoPE, complete_pairs
from extrapolate.errors import UserError


@register("scale-invariant")
class ScaleInvariant(RoPE):
    """Stretches and lowers each score by its distance, so that every octave of distances gets as much attention.

    score(i, j) = a_r z + m_r, with z = q_i k_j / sqrt(K) after rotation, r = i - j, a_r^2 = 2 ln(r/tau + 1) + 1 and m_r
    = -2 ln(r/tau + 1). If z is normal with variance 1, exp(score) is e^0.5 / (r/tau + 1) on average: far keys compete
    by being sharper. Nothing is learned. Underneath are RoPE's fastest pairs; the others are not rotated, as in p-RoPE.
    Beyond L: no kept pair reaches a new angle, and further octaves add weight as slowly as those within L.

    The derivation needs scores with a variance of about 1, which the paper gets by normalising queries and keys: that
    is a setting of the model (--qk-norm), off unless set. Do not combine with SSMax or log-n, which do the same by the
    query's index. Our reading: pairs are kept if they complete a turn within L; the first token is not treated apart.

    Arguments: tau, in tokens (default 10, the paper's best); kept, in pairs (default: as many as complete a turn within
    L); theta and pairing, as for rope.
    Source: Anson et al., arXiv 2505.17083.
    """

    display = "Scale-invariant"
    source = "arXiv 2505.17083"
    caption = (
        "Scale-invariant: our reading of arXiv 2505.17083, which has no public code; the paper also normalises queries "
        "and keys"
    )

    def __init__(
        self,
        dims: Dims,
        *,
        tau: float = 10.0,
        kept: int | None = None,
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        if tau <= 0:
            raise UserError(f"scale-invariant: tau must be more than 0 tokens, not {tau:g}")
        self.tau = tau
        self.kept = complete_pairs(self, dims.seq_len) if kept is None else kept
        if not 0 <= self.kept <= dims.head_dim // 2:
            raise UserError(f"scale-invariant: kept must be between 0 and {dims.head_dim // 2} pairs, not {kept}")

    def frequencies(self, device: torch.device) -> Tensor:
        frequencies = super().frequencies(device)
        frequencies[self.kept :] = 0.0
        return frequencies

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        distance_TS = (context.pos_T[:, None] - context.pos_S).clamp(min=0)  # hidden keys have negative ones
        octaves_TS = 2 * torch.log1p(distance_TS / self.tau)
        stretch_TS = self.rounded((octaves_TS + 1).sqrt())
        return stretch_TS * scaled_product(q_BHTK, k_BHSK) - self.rounded(octaves_TS)
