"""T5's relative position bias."""

import math

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims, Encoding, register


@register("t5")
class T5(Encoding):
    """Adds to each score a learned number per head, looked up by the distance: exact when near, in buckets when far.

    Distance r falls into bucket r for r < E = buckets/2, else into E + floor(ln(r/E) / ln(far/E) E), at most
    buckets - 1. The table [buckets, H] is shared by all layers and starts from N(0, 1/D), as in T5; scores keep
    their 1/sqrt(K), which T5 itself leaves out.
    Beyond L: the last bucket goes on for ever, so far keys all have the same bias.

    Arguments: buckets (default 32); max_distance, far, in tokens (default 128 as in T5, or L if that is shorter: a
    bucket that training never reaches would keep its random start).
    Source: Raffel et al., arXiv 1910.10683.
    """

    display = "T5"
    source = "arXiv 1910.10683"
    family = "bias"
    shared_by_layers = ("table_RH",)

    def __init__(self, dims: Dims, *, buckets: int = 32, max_distance: int | None = None) -> None:
        super().__init__(dims)
        self.buckets = buckets
        self.max_distance = min(128, dims.seq_len) if max_distance is None else max_distance
        if buckets < 2 or buckets % 2:
            raise ValueError(f"t5: buckets must be an even number, not {buckets}")
        if max_distance is not None and max_distance <= buckets // 2:
            raise ValueError(f"t5: max_distance must be more than {buckets // 2}, half the buckets, not {max_distance}")
        self.max_distance = max(self.max_distance, buckets // 2 + 1)
        self.table_RH = nn.Parameter(torch.empty(buckets, dims.heads).normal_(std=dims.width**-0.5))

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance, int64; a distance before the query counts as 0."""
        distance = distance.clamp(min=0)
        exact = self.buckets // 2
        share = (distance.clamp(min=1) / exact).log() / math.log(self.max_distance / exact)
        far = exact + (share * (self.buckets - exact)).long()
        return torch.where(distance < exact, distance.long(), far.clamp(max=self.buckets - 1))

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        bucket_TS = self.bucket(pos_T[:, None] - pos_S[None, :])
        return nn.functional.embedding(bucket_TS, self.table_RH).permute(2, 0, 1)
