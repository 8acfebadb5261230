"""Why attention fails beyond L: what goes to the first tokens, how large scores get, and how keys spread.

Shapes: B windows of a batch, H heads, T queries, S keys, K head dim.
"""

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from extrapolate.inspection.inspected import Chunk, Inspected
from extrapolate.inspection.measurements.base import OfAttention, Sums, Value, measurements

FIRST = 4


@measurements.register("sinks")
class Sinks(OfAttention):
    """Attention on the first tokens, the largest scores, and the stable rank of keys, for each layer and head.

    Models learn to rest unneeded attention on the first tokens. Beyond L this can fail: the keys of a longer window
    point in more directions, larger scores appear, and the weight on the first tokens drops.

    Queries and keys are taken after rotation. The stable rank of the matrix of keys is the sum of its squared singular
    values divided by the largest: 1 if all keys point in one direction, K if they fill all directions evenly. If an
    extension or a setting gives keys several rotations or two sets of scores, only the attention has values.
    """

    quantities: ClassVar = {
        "first_four": ("share", "The attention on the first four tokens of the window."),
        "largest_score": (
            "",
            "The largest product of a query and a key that it sees, divided by the root of K.",
        ),
        "key_rank": ("", "The stable rank of the keys that the last query sees."),
    }
    source = "arXiv 2309.17453 for the four tokens, arXiv 2603.18017 for the others; the details are our reading"

    @staticmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        sums = Sums(inspected)

        def look(chunk: Chunk) -> None:
            sinks = chunk.weight_BHTS[..., : max(0, FIRST - chunk.keys.start)]
            sums.add("first_four", chunk, sinks.sum(dim=(2, 3)))
            if chunk.q_BHTK is None or chunk.k_BHSK is None:
                return
            seen_TS = seen(chunk, inspected.setting.encodings[chunk.layer].window)
            q_BHTK, k_BHSK = chunk.q_BHTK.float(), chunk.k_BHSK.float()
            scores_BHTS = q_BHTK @ k_BHSK.transpose(-1, -2) / math.sqrt(q_BHTK.shape[-1])  # no bias, no temperature
            largest_BHT = scores_BHTS.masked_fill(~seen_TS, float("-inf")).amax(dim=-1)
            sums.add("largest_score", chunk, largest_BHT.sum(dim=2))
            if chunk.queries.stop == inspected.length:
                rank_BH = stable_rank(chunk.k_BHSK[:, :, seen_TS[-1]])
                sums.add("key_rank", chunk, rank_BH * sums.queries)  # of the last query, not a mean over all

        inspected.observe(look, inspected.tokens_WN)
        yield from sums.values()


def seen(chunk: Chunk, window: int | None) -> Tensor:
    """Whether each query sees each key, [T, S]."""
    key_S = torch.arange(chunk.keys.start, chunk.keys.stop, device=chunk.weight_BHTS.device)
    distance_TS = chunk.query_index[:, None] - key_S
    return (distance_TS >= 0) & (distance_TS < (chunk.keys.stop if window is None else window))


def stable_rank(k_BHSK: Tensor) -> Tensor:
    """The squared Frobenius norm over the squared spectral norm, [B, H]."""
    k_BHSK = k_BHSK.double()
    gram_BHKK = k_BHSK.transpose(-1, -2) @ k_BHSK
    squares_BH = gram_BHKK.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return squares_BH / torch.linalg.eigvalsh(gram_BHKK)[..., -1]
