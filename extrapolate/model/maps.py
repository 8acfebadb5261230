"""The weights of attention, kept whole.

Shapes: B batch, H heads, T queries, S keys.
"""

from torch import Tensor


class Maps:
    """An `Observer` that keeps what every layer gives every key: in `weights`, by layer, float32 [B, H, T, S].

    length is S, tokens; the queries are those from index `first` on. A key that a query does not see has weight 0.
    """

    def __init__(self, length: int, first: int = 0) -> None:
        self.length, self.first = length, first
        self.weights: dict[int, Tensor] = {}

    def attended(
        self, layer: int, q_BHTK: Tensor | None, k_BHSK: Tensor | None, weight_BHTS: Tensor, queries: slice, keys: slice
    ) -> None:
        """Takes the weights of a chunk of queries."""
        if layer not in self.weights:
            batch, heads = weight_BHTS.shape[:2]
            self.weights[layer] = weight_BHTS.new_zeros(batch, heads, self.length - self.first, self.length)
        rows = slice(queries.start - self.first, queries.stop - self.first)
        self.weights[layer][:, :, rows, keys] = weight_BHTS
