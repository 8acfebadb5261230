"""DAPE: data-adaptive positional encoding."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Context, Dims, register, scaled_product
from extrapolate.encodings.wrapper import Wrapper
from extrapolate.errors import UserError


@register("dape")
class DAPE(Wrapper):
    """Lets a small network correct the scores, given the scores and a static bias together.

    score = A + B + f(A, B), with A the scaled scores of all heads and B the base's bias. Each layer has a network f, 2H
    -> width -> H with LeakyReLU(0.01), which is applied to each pair (i, j) separately. The base is any encoding with a
    bias: alibi, kerple, fire.
    Beyond L: like its base, but better according to the paper.

    Arguments: base, a spec, in parentheses if it has arguments; width, of the network.
    Source: Zheng et al., arXiv 2405.14722.
    """

    display = "DAPE"
    source = "arXiv 2405.14722"
    family = "bias"

    def __init__(self, dims: Dims, *, base: str = "alibi", width: int = 32) -> None:
        super().__init__(dims, base)
        start_T = torch.zeros(1)
        # Sizes are counted on torch's meta device, which computes nothing.
        if not start_T.is_meta and self.inner.bias(start_T, start_T) is None:
            raise UserError(f"dape does not apply to {self.inner.display}: its base must have a bias, as alibi has")
        if width < 1:
            raise UserError(f"dape: width must be positive, not {width}")
        self.width = width
        self.network = nn.Sequential(nn.Linear(2 * dims.heads, width), nn.LeakyReLU(0.01), nn.Linear(width, dims.heads))

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> None:
        return None  # `scores` adds it

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        product_BHTS = scaled_product(q_BHTK, k_BHSK)
        bias_HTS = self.inner.bias(context.pos_T, context.pos_S)
        assert bias_HTS is not None
        bias_HTS = self.rounded(bias_HTS)
        both_BTSH = torch.cat([product_BHTS, bias_HTS.expand_as(product_BHTS)], dim=1).movedim(1, -1)
        with torch.autocast(both_BTSH.device.type, enabled=False):  # bfloat16 would round far keys' biases
            return product_BHTS + bias_HTS + self.network(both_BTSH).movedim(-1, 1)
