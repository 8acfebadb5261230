"""A learned table of absolute positions, as in GPT-2."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import EMBEDDED, LOGITS, TABLE, Dims, Encoding, register


@register("learned")
class Learned(Encoding):
    """Adds a trained vector per position to the token embedding: x_i + E[i], with E of shape [L, D].

    E is initialised and trained like the token embeddings; GPT-2 also initialises both alike.
    Beyond L: undefined; evaluation there is reported as n/a, never clamped.

    Source: Radford et al. 2019 (GPT-2); the table goes back to Gehring et al., arXiv 1705.03122.
    """

    display = "Learned"
    source = "arXiv 1705.03122"
    family = "absolute"
    accepts = frozenset({TABLE, LOGITS})

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.max_length = dims.seq_len
        if dims.layer == 0:
            self.table_LD = nn.Parameter(torch.empty(dims.seq_len, dims.width).normal_(std=EMBEDDED))

    def embeddings(self) -> list[Tensor]:
        return [self.table_LD] if self.dims.layer == 0 else []

    def embed(self, x_BTD: Tensor, pos_T: Tensor) -> Tensor:
        below_T = pos_T.floor().clamp(max=len(self.table_LD) - 1)
        above_T = pos_T.ceil().clamp(max=len(self.table_LD) - 1)
        share_T1 = (pos_T - below_T)[:, None]  # of a position in between, as an extension makes them
        return x_BTD + self.rounded(torch.lerp(self.table_LD[below_T.long()], self.table_LD[above_T.long()], share_T1))
