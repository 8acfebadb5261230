"""Heads that attend by position only.

Shapes: W windows, B windows of a batch, H heads, T queries, S keys.
"""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from extrapolate.inspection.inspected import Chunk, Inspected
from extrapolate.inspection.measurements.base import OfAttention, Sums, Value, measurements

PLACES = {"own": "the query's own token", "previous": "the token before it", "first": "the window's first token"}


@measurements.register("heads")
class Heads(OfAttention):
    """How much each head attends to its own, the previous and the first token, in text and in random tokens.

    A score is (mass - u) / (1 - u), with mass the attention on that token and u = 1 / (i + 1) that of a uniform head
    over tokens 0..i: 1 is all of the attention, 0 as much as a uniform head gives. A head attends by position alone if
    one score is at least 0.5 both in text and after every token is replaced with a random one.
    """

    quantities: ClassVar = {
        **{name: ("", f"The score of {what}, in text.") for name, what in PLACES.items()},
        **{f"{name}_random": ("", f"The score of {what}, in random tokens.") for name, what in PLACES.items()},
        "overlap": ("share", "How much of the attention stays in place if all tokens become random."),
    }
    source = "arXiv 2410.06205 for the patterns; the scores and the criterion are our own"

    @staticmethod
    def inputs(seq_len: int, length: int, windows: int) -> float:
        return 2 * windows * length

    @staticmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        sums = Sums(inspected)

        def look(chunk: Chunk) -> None:
            halves = chunk.weight_BHTS.chunk(2)  # the text, and the random tokens
            for ending, weight_BHTS in zip(("", "_random"), halves, strict=True):
                for name, score_BHT in scores(chunk, weight_BHTS).items():
                    sums.add(name + ending, chunk, score_BHT.sum(dim=2))
            sums.add("overlap", chunk, torch.minimum(*halves).sum(dim=-1).sum(dim=2))

        inspected.observe(look, inspected.tokens_WN, inspected.random_tokens)
        yield from sums.values()


def scores(chunk: Chunk, weight_BHTS: Tensor) -> dict[str, Tensor]:
    """The score of each of PLACES, [B, H, T]."""
    query_T = chunk.query_index
    found = {}
    for name, key_T in (("own", query_T), ("previous", query_T - 1), ("first", torch.zeros_like(query_T))):
        seen_T = key_T >= chunk.keys.start
        index_T = (key_T - chunk.keys.start).clamp(min=0)
        index_BHT1 = index_T[:, None].expand(*weight_BHTS.shape[:3], 1)
        mass_BHT = weight_BHTS.gather(-1, index_BHT1)[..., 0] * seen_T
        even_T = 1 / (query_T + 1)
        found[name] = (mass_BHT - even_T) / (1 - even_T)
    return found
