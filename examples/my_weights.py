"""Custom weights: each key gets a sigmoid of its score, and no key takes weight from another."""

import math

from torch import Tensor

from extrapolate.encodings.base import LOGITS, Context, Dims, Encoding


class Sigmoid(Encoding):
    """Replaces the softmax by sigmoid(score - ln L), so that all weights together start at about 1.

    Source: this file; the bias is that of arXiv 2409.04431.
    """

    display = "Sigmoid"
    source = "this file"
    accepts = frozenset({LOGITS})
    positional = False

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.shift = math.log(dims.seq_len)

    def weights(self, scores_BHTS: Tensor, context: Context) -> Tensor:
        return (scores_BHTS - self.shift).sigmoid()  # hidden keys have -inf, and get 0
