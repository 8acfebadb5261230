"""CoPE: contextual position encoding."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, Context, Dims, Encoding, register, scaled_product
from extrapolate.errors import UserError


@register("cope")
class CoPE(Encoding):
    """Counts positions by content: each key from the scored one to the query counts as anything from 0 to 1.

    The gate is g_ij = sigmoid(q_i k_j / sqrt(K)), and key j is at position p_ij = g_ij + ... + g_ii, at most P - 1. The
    score gains q_i e[p_ij], with e[p] interpolated between the learned vectors of floor(p) and ceil(p), which start
    from 0. Each layer has one table [P, K], shared by its heads. Gates are summed in float32.
    Beyond L: positions stop at P - 1.

    As in the paper's appendix, q e is added unscaled; the paper's later code divides it by sqrt(K) too.
    Arguments: count, P in positions (default 64, as in the appendix); scaled, whether q e is divided by sqrt(K).
    Source: Golovneva et al., arXiv 2405.18719.
    """

    display = "CoPE"
    source = "arXiv 2405.18719"
    family = "content-dependent"
    accepts = frozenset({LOGITS})
    positional = False

    def __init__(self, dims: Dims, *, count: int = 64, scaled: bool = False) -> None:
        super().__init__(dims)
        if count < 2:
            raise UserError(f"cope: count must be at least 2 positions, not {count}")
        self.count = count
        self.scaled = scaled
        self.table_PK = nn.Parameter(torch.zeros(count, dims.head_dim))

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        content_BHTS = scaled_product(q_BHTK, k_BHSK)
        gate_BHTS = content_BHTS.sigmoid().masked_fill(context.hidden_TS, 0.0)
        # From each key on to the query: the sum over all keys, less the sum over those before.
        before_BHTS = gate_BHTS.cumsum(dim=-1) - gate_BHTS
        position_BHTS = (gate_BHTS.sum(dim=-1, keepdim=True) - before_BHTS).clamp(0, self.count - 1)
        value_BHTP = (q_BHTK @ self.rounded(self.table_PK).to(q_BHTK.dtype).T).float()
        if self.scaled:
            value_BHTP = value_BHTP * q_BHTK.shape[-1] ** -0.5
        below_BHTS = position_BHTS.detach().floor()
        share_BHTS = position_BHTS - below_BHTS
        lower_BHTS = value_BHTP.gather(-1, below_BHTS.long())
        upper_BHTS = value_BHTP.gather(-1, position_BHTS.detach().ceil().long())
        return content_BHTS + torch.lerp(lower_BHTS, upper_BHTS, share_BHTS)
