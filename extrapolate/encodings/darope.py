"""DaRoPE: data-aware rotary position embedding."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, POSITIONS, Dims, Rotations, register
from extrapolate.encodings.rope import RoPE, complete_pairs, of_key_heads
from extrapolate.errors import UserError

CLIP = 1e-6  # the share of L by which positions stay below it, so that their logits are finite


@register("darope")
class DaRoPE(RoPE):
    """Turns slow pairs by a place in the training length that content chooses, and fast pairs as RoPE does.

    Pair m turns by i w_m, w_m = theta^(-2m/K), if it completes a turn within L (w_m >= 2 pi / L). The others turn by
    c w_m, with c = L sigmoid(u_h x_i + alpha_h b_i) between 0 and L. b_i = logit((i + 1/2) / L), with (i + 1/2) / L at
    most 1 - 1e-6; x is the layer's attention input; u_h and alpha_h are learned for each head and layer. With u = 0 and
    alpha = 1, c is i + 1/2 within L, which is RoPE. Query heads that share a key head turn as the first of them.
    Beyond L: fast pairs have completed a turn, and c cannot exceed L, so no angle leaves the trained range. But b_i is
    the same for all positions there: how far back a token lies, slow pairs can learn from content alone.

    We found no code by the authors; the formula is that of the paper. Arguments: alpha, where alpha_h starts (default
    0.5); spread, the standard deviation of u at first (default 0.1); kept, the number of fast pairs (default: as many
    as complete a turn within L); length, L in tokens (default: the training length); theta and pairing, as for rope
    (the paper's dense models have a theta of 500,000, its largest one 10,000).
    Source: DaRoPE, arXiv 2609.34556.
    """

    display = "DaRoPE"
    source = "arXiv 2609.34556"
    family = "content-dependent"
    accepts = frozenset({POSITIONS, LOGITS})  # slow pairs depend on two places rather than on their distance

    def __init__(
        self,
        dims: Dims,
        *,
        alpha: float = 0.5,
        spread: float = 0.1,
        kept: int | None = None,
        length: int | None = None,
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        if spread < 0:
            raise UserError(f"darope: spread must not be negative, not {spread:g}")
        self.length = dims.seq_len if length is None else length
        if self.length < 1:
            raise UserError(f"darope: length must be at least 1 token, not {length}")
        self.kept = complete_pairs(self, self.length) if kept is None else kept
        if not 0 <= self.kept <= dims.head_dim // 2:
            raise UserError(f"darope: kept must be between 0 and {dims.head_dim // 2} pairs, not {kept}")
        self.alpha = alpha
        self.spread = spread
        self.content = nn.Linear(dims.width, dims.heads, bias=False)
        nn.init.normal_(self.content.weight, std=spread)
        self.alpha_H = nn.Parameter(torch.full((dims.heads,), alpha))

    def rotations(self) -> Rotations | None:
        return None  # slow pairs have no speed

    def prepare(self, x_BTD: Tensor) -> Tensor:
        """u x, [B, H, T], float32."""
        return self.content(x_BTD).float().mT

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        content_BGT = of_key_heads(state, q_BHTK, k_BGSK)
        angle_BGTM = self._angles(content_BGT, pos_T)
        return self.rotated_heads(
            q_BHTK, k_BGSK, angle_BGTM, angle_BGTM if pos_S is pos_T else self._angles(content_BGT, pos_S)
        )

    def _angles(self, content_BGT: Tensor, pos_T: Tensor) -> Tensor:
        frequencies = self.frequencies(pos_T.device)
        fast_TM = torch.outer(pos_T, frequencies[: self.kept])
        # Not a logit of (i + 1/2) / L: 1 - 1e-6 has too few digits in float32.
        before_T, left_T = pos_T + 0.5, self.length - pos_T - 0.5
        prior_T = before_T.clamp(max=(1 - CLIP) * self.length).log() - left_T.clamp(min=CLIP * self.length).log()
        alpha_G1 = self.alpha_H[:: self.dims.heads // content_BGT.shape[1], None]
        place_BGT = self.length * (content_BGT + alpha_G1 * prior_T).sigmoid()
        slow_BGTM = place_BGT[..., None] * frequencies[self.kept :]
        return torch.cat([fast_TM.expand(*place_BGT.shape[:2], -1, -1), slow_BGTM], dim=-1)
