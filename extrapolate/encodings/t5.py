"""T5's relative position bias."""

import math

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims, Encoding, register
from extrapolate.errors import UserError


@register("t5")
class T5(Encoding):
    """Adds a bias to each score that each head learns: one per distance for near keys, one per bucket for far ones.

    Distance r falls into bucket r if r < E = buckets/2, else into min(buckets - 1, E + floor(ln(r/E) / ln(F/E) E)). The
    table [buckets, H] is shared by all layers and starts from N(0, 1/D), as in T5; scores keep their 1/sqrt(K), which
    T5 omits. Beyond L: the last bucket has no end, so all far keys get the same bias.

    Arguments: buckets, an even number (default 32, or L/2 if that is less); max_distance, F in tokens (default 128 as
    in T5, or L if that is less: a bucket that training never reaches would keep its random start).
    Source: Raffel et al., arXiv 1910.10683.
    """

    display = "T5"
    source = "arXiv 1910.10683"
    family = "bias"
    shared_by_layers = ("table_RH",)

    def __init__(self, dims: Dims, *, buckets: int | None = None, max_distance: int | None = None) -> None:
        super().__init__(dims)
        self.buckets = max(2, min(32, dims.seq_len // 4 * 2)) if buckets is None else buckets
        if self.buckets < 2 or self.buckets % 2:
            raise UserError(f"t5: buckets must be an even number, not {buckets}")
        exact = self.buckets // 2
        if max_distance is not None and max_distance <= exact:
            raise UserError(f"t5: max_distance must be more than {exact}, half the buckets, not {max_distance}")
        self.max_distance = max(exact + 1, min(128, dims.seq_len)) if max_distance is None else max_distance
        self.table_RH = nn.Parameter(torch.empty(self.buckets, dims.heads).normal_(std=dims.width**-0.5))

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance, int64; a distance before the query counts as 0."""
        # Interpolated positions are a little more or less than they should be: a whole number must not fall short.
        distance = distance.clamp(min=0) + 1e-3
        exact = self.buckets // 2
        share = (distance.clamp(min=1) / exact).log() / math.log(self.max_distance / exact)
        far = exact + (share * (self.buckets - exact)).long()
        return torch.where(distance < exact, distance.long(), far.clamp(max=self.buckets - 1))

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        bucket_TS = self.bucket(pos_T[:, None] - pos_S[None, :])
        return nn.functional.embedding(bucket_TS, self.table_RH).permute(2, 0, 1)
