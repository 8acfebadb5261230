"""A custom encoding that depends on content: each token decides how much of the preceding context to forget."""

from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, Context, Dims, Encoding, scaled_product


class Forgetful(Encoding):
    """Subtracts from each score the gates of all tokens after the key, up to the query. Each head has a gate.

    Source: this file.
    """

    display = "Forgetful"
    source = "this file"
    accepts = frozenset({LOGITS})  # there are no positions to change

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.gate = nn.Linear(dims.width, dims.heads)

    def prepare(self, x_BTD: Tensor) -> Tensor:
        forgotten_BTH = nn.functional.softplus(self.gate(x_BTD).float())
        return forgotten_BTH.cumsum(dim=1).transpose(1, 2)  # [B, H, T]: up to each token

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        sum_BHT = context.state  # what `prepare` returned, for the whole window
        between_BHTS = sum_BHT[:, :, context.queries, None] - sum_BHT[:, :, None, context.keys]
        return scaled_product(q_BHTK, k_BHSK) - between_BHTS
