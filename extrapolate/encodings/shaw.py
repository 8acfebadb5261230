"""Shaw's relative positions."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import POSITIONS, RELATIVE, Context, Dims, Encoding, register, scaled_product
from extrapolate.errors import UserError


@register("shaw")
class Shaw(Encoding):
    """Adds to every key a learned vector that depends on how far back the key is.

    score(i, j) = q_i (k_j + a[min(i - j, R)]) / sqrt(K). Each layer has a table a of R + 1 vectors of size K, shared by
    its heads. This is the paper's key part; its part on values, which the paper finds dispensable, is left out.
    Beyond L: all distances above R count as R.

    Arguments: max_distance, R in tokens (default L - 1, at most 128; the paper uses 16).
    Source: Shaw et al., arXiv 1803.02155.
    """

    display = "Shaw"
    source = "arXiv 1803.02155"
    family = "bias"
    accepts = RELATIVE - {POSITIONS}

    def __init__(self, dims: Dims, *, max_distance: int | None = None) -> None:
        super().__init__(dims)
        self.max_distance = min(dims.seq_len - 1, 128) if max_distance is None else max_distance
        if self.max_distance < 1:
            raise UserError(f"shaw: max_distance must be at least 1 token, not {max_distance}")
        self.table_RK = nn.Parameter(torch.empty(self.max_distance + 1, dims.head_dim).normal_(std=0.02))

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        distance_TS = (context.pos_T[:, None] - context.pos_S[None, :]).round().long().clamp(0, self.max_distance)
        by_distance_BHTR = scaled_product(q_BHTK, self.rounded(self.table_RK).to(q_BHTK.dtype))
        chosen_BHTS = by_distance_BHTR.gather(-1, distance_TS.expand(*q_BHTK.shape[:2], -1, -1))
        return scaled_product(q_BHTK, k_BHSK) + chosen_BHTS
