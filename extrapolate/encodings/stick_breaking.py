"""Stick-breaking attention: each query hands out its attention from the nearest key to the farthest."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from extrapolate.encodings.base import LOGITS, Context, Dims, Encoding, register


@register("stick-breaking")
class StickBreaking(Encoding):
    """Replaces the softmax: each key, from the nearest to the farthest, takes a share of what the nearer ones left.

    The weight of key j < i for query i is sigmoid(z_ij) times the product of 1 - sigmoid(z_it) over j < t < i, with z
    the scaled product; it is computed from sums of logarithms. The query's own token has no score. There is no other
    encoding: order is in the products.
    Beyond L: more keys do not dilute attention, since a far key gets only what the nearer ones left, and with trained
    scores little is left after L tokens.

    Arguments: remainder, what becomes of the share that no key took: "dropped", as in the paper's formula, so that the
    weights add up to less than 1, or "current", which gives it to the query's own token.
    Source: Tan et al., arXiv 2410.17980.
    """

    display = "Stick-breaking"
    source = "arXiv 2410.17980"
    family = "content-dependent"
    accepts = frozenset({LOGITS})
    positional = False

    def __init__(self, dims: Dims, *, remainder: Literal["dropped", "current"] = "dropped") -> None:
        super().__init__(dims)
        self.remainder = remainder

    def weights(self, scores_BHTS: Tensor, context: Context) -> Tensor:
        device = scores_BHTS.device
        query_T = torch.arange(context.queries.start, context.queries.stop, device=device)
        end = context.keys.stop  # the last column is its own key's; a sink is one more before the first
        own_TS = query_T[:, None] == torch.arange(end - scores_BHTS.shape[-1], end, device=device)
        z_BHTS = scores_BHTS.masked_fill(own_TS, float("-inf"))
        left_BHTS = logsigmoid(-z_BHTS)  # the logarithm of the share that a key leaves, 0 if it is hidden
        nearer_BHTS = pad(left_BHTS.flip(-1)[..., :-1], (1, 0)).cumsum(dim=-1).flip(-1)
        weight_BHTS = (logsigmoid(z_BHTS) + nearer_BHTS).exp()
        if self.remainder == "current":
            weight_BHTS = weight_BHTS + own_TS * left_BHTS.sum(dim=-1, keepdim=True).exp()
        return weight_BHTS
