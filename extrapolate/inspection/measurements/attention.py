"""Where attention goes: how far back, to how many keys, beyond L, and to the first token.

Shapes: W windows, B windows of a batch, H heads, T queries, S keys, D distances.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from extrapolate.inspection.inspected import Chunk, Inspected
from extrapolate.inspection.measurements.base import OfAttention, Sums, Value, measurements, powers_of_two


@measurements.register("attention")
class Attention(OfAttention):
    """Attention by distance, its entropy, and its mass beyond L and on the first token, for each layer and head."""

    quantities: ClassVar = {
        "mass": ("share", "The attention on keys from `at` tokens back to just before the next `at`."),
        "entropy": ("nats", "The entropy of the attention of a query."),
        "beyond": ("share", "The attention on keys at least L tokens back, which no query had in training."),
        "first": ("share", "The attention on the first token of the window."),
        "uniform_entropy": (
            "nats",
            "The entropy of a uniform head, which attends evenly to all tokens up to the query.",
        ),
        "uniform_beyond": ("share", "The mass beyond L of a uniform head."),
        "uniform_first": ("share", "The mass on the first token of a uniform head."),
    }
    at = "the smallest distance in tokens, 0 for the query's own token"

    @staticmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        edges = edges_of(inspected.length)
        sums = Sums(inspected)

        def look(chunk: Chunk) -> None:
            weight_BHTS = chunk.weight_BHTS
            beyond_BHTD = mass_beyond(chunk, [*edges, inspected.seq_len])
            *from_D, beyond = beyond_BHTD.sum(dim=2).unbind(dim=-1)
            for edge, mass_BH, next_BH in zip(edges, from_D, [*from_D[1:], torch.zeros_like(beyond)], strict=True):
                sums.add("mass", chunk, mass_BH - next_BH, edge)
            sums.add("beyond", chunk, beyond)
            sums.add("entropy", chunk, torch.special.entr(weight_BHTS).sum(dim=(2, 3)))
            first = weight_BHTS[..., 0].sum(dim=2) if chunk.keys.start == 0 else torch.zeros_like(beyond)
            sums.add("first", chunk, first)

        inspected.observe(look, inspected.tokens_WN)
        yield from sums.values()
        keys_T = inspected.query_index.double() + 1
        for name, uniform_T in {
            "uniform_entropy": keys_T.log(),
            "uniform_beyond": (keys_T - inspected.seq_len).clamp(min=0) / keys_T,
            "uniform_first": 1 / keys_T,
        }.items():
            yield Value(name, np.array([uniform_T.mean().item()]))


def edges_of(length: int) -> list[int]:
    """The beginnings of the ranges of distances: 0, 1, 2, 3, 4, 8, 16, ... below the length."""
    return [edge for edge in sorted({0, 3, *powers_of_two(length)}) if edge < length]


def mass_beyond(chunk: Chunk, edges: list[int]) -> Tensor:
    """The attention of each query on keys at least as far back as each edge, [B, H, T, D]."""
    sum_BHTS = torch.nn.functional.pad(chunk.weight_BHTS.cumsum(dim=-1), (1, 0))  # [..., s]: the keys before s
    edge_D = torch.tensor(edges, device=sum_BHTS.device)
    end_TD = (chunk.query_index[:, None] - edge_D + 1 - chunk.keys.start).clamp(min=0)
    return sum_BHTS.gather(-1, end_TD.expand(*sum_BHTS.shape[:2], *end_TD.shape))
