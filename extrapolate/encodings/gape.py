"""GAPE: a decay that queries ask for and keys may escape."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Context, Dims, register, scaled_product
from extrapolate.encodings.p_rope import PRoPE
from extrapolate.errors import UserError


@register("gape")
class GAPE(PRoPE):
    """Adds to RoPE, or p-RoPE, a decay with distance, as strong as the query decides, except for keys that opt out.

    bias(i, j) = -Gamma_h g_i (1 - l_j) (i - j) / T, with g_i = softplus(c_h q_i + e_h), l_j = sigmoid(a_h k_j + b_h)
    and Gamma_h = softplus(gamma_h). It is added after the division by sqrt(K). A key with l = 1 is a landmark: no
    distance lowers its score. The paper writes Gamma_h g_i [j (1 - l_j) + i l_j] / T, which is the same except for
    a constant in each row of scores.
    Beyond L: rotated pairs reach angles never seen, as in RoPE, but far keys that are no landmarks get little weight.

    Our reading, as there is no public code: g and l read queries and keys before the rotation, so that they depend on
    content alone; T stays the training length in longer windows, so that the decay per token stays; a, b and c start
    at 0, and Gamma and g at 1.

    Arguments: length, T in tokens (default L); p, the share of RoPE's pairs that is rotated (default 1, all); drop,
    theta and pairing, as for p-rope.
    Source: Ali et al., arXiv 2605.10414.
    """

    display = "GAPE"
    source = "arXiv 2605.10414"
    family = "content-dependent"
    caption = (
        "GAPE: our reading of arXiv 2605.10414, which has no public code; how it starts, where its gates read queries "
        "and keys, and T = L are ours"
    )

    def __init__(
        self,
        dims: Dims,
        *,
        length: int | None = None,
        p: float = 1.0,
        drop: Literal["slowest", "fastest"] = "slowest",
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        if not 0 <= p <= 1:
            raise UserError(f"gape: p must be between 0 and 1, not {p:g}")
        super().__init__(dims, p=p, drop=drop, theta=theta, pairing=pairing)
        self.length = dims.seq_len if length is None else length
        if self.length < 1:
            raise UserError(f"gape: length must be at least 1 token, not {length}")
        one = math.log(math.expm1(1.0))  # where softplus is 1
        self.query_HK, self.key_HK = (nn.Parameter(torch.zeros(dims.heads, dims.head_dim)) for _ in range(2))
        self.key_bias_H = nn.Parameter(torch.zeros(dims.heads))
        self.query_bias_H, self.gamma_H = (nn.Parameter(torch.full((dims.heads,), one)) for _ in range(2))

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        # Undo the rotation: the gates read unrotated queries and keys.
        own_q, own_k = self.rotate(q_BHTK.float(), k_BHSK.float(), -context.pos_T, -context.pos_S)
        wish_BHT = (own_q * self.query_HK[:, None]).sum(dim=-1) + self.query_bias_H[:, None]
        landmark_BHS = (own_k * self.key_HK[:, None]).sum(dim=-1) + self.key_bias_H[:, None]
        decay_BHT = nn.functional.softplus(self.gamma_H)[:, None] * nn.functional.softplus(wish_BHT)
        bound_BHS = (-landmark_BHS).sigmoid()  # 1 - l
        distance_TS = self.rounded((context.pos_T[:, None] - context.pos_S) / self.length)
        decay_BHTS = decay_BHT[..., None] * bound_BHS[:, :, None] * distance_TS
        return scaled_product(q_BHTK, k_BHSK) - decay_BHTS
