"""How a model with rotary encoding uses its frequencies.

Shapes: W windows, B windows of a batch, H heads, T queries, S keys, K head dim, M frequencies.
"""

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from extrapolate.encodings.base import Rotations
from extrapolate.inspection.inspected import Chunk, Inspected
from extrapolate.inspection.measurements.base import Measurement, Sums, Value, measurements


@measurements.register("frequencies")
class Frequencies(Measurement):
    """The mean 2-norm of queries and keys in the channels of each frequency, and its share of the scores.

    The product of the two norms bounds what a frequency can add to a score; the share is what it does add. Over
    the keys that a query sees, it is the covariance of the frequency's part with the whole score, divided by the
    variance of the score. So the shares of a head sum to 1, and a negative one works against the others. If rotations
    also scale, as in xPos, norms are taken afterwards.
    """

    quantities: ClassVar = {
        "query_norm": ("", "The mean 2-norm of the frequency's two channels of queries."),
        "key_norm": ("", "The same for keys."),
        "score_share": ("share", "The pair's share of the variance of scores over keys, averaged over queries."),
        "radians": ("radians per token", "The frequency, 0 if the channels are not rotated."),
    }
    at = "the index of the frequency from 0, in the encoding's order, fastest first"
    source = "arXiv 2410.06205 for the norms; the share of the variance is our own"

    @classmethod
    def refusal(cls, inspected: Inspected) -> str | None:
        if (reason := super().refusal(inspected)) is not None:
            return reason
        setting = inspected.setting
        if all(encoding.rotations() is None for encoding in setting.encodings):
            return f"{inspected.model.label()} does not turn pairs of channels at one speed each"
        if any(setting.of_layer(layer).pairs is not None for layer in range(len(setting.encodings))):
            return "the extension turns each query at several speeds"
        return None

    @staticmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        rotations = {
            layer: found
            for layer, encoding in enumerate(inspected.setting.encodings)
            if (found := encoding.rotations()) is not None
        }
        sums = Sums(inspected)

        def look(chunk: Chunk) -> None:
            if chunk.layer in rotations:
                for name, value_BHTM in by_frequency(chunk, rotations[chunk.layer]).items():
                    sums.add(name, chunk, value_BHTM.sum(dim=2))

        inspected.observe(look, inspected.tokens_WN)
        for name, layer, _, mean_WHM in sums.means():
            for head, m in np.ndindex(mean_WHM.shape[1:]):
                yield Value(name, mean_WHM[:, head, m], layer, head, m)
        for layer, found in rotations.items():
            scale = inspected.setting.of_layer(layer).position_scale
            for m, radians in enumerate((scale * found.frequency_M).tolist()):
                yield Value("radians", np.array([radians]), layer, at=m)


def by_frequency(chunk: Chunk, rotations: Rotations) -> dict[str, Tensor]:
    """The quantities of each query, and of the key of the same token, [B, H, T, M]."""
    assert chunk.q_BHTK is not None
    assert chunk.k_BHSK is not None
    q_BHTK, k_BHSK = chunk.q_BHTK.float(), chunk.k_BHSK.float()
    pairs_M2 = rotations.channel_M2.to(q_BHTK.device)
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-1, -2) / math.sqrt(q_BHTK.shape[-1])
    key_S = torch.arange(chunk.keys.start, chunk.keys.stop, device=q_BHTK.device)
    seen_TS = chunk.weight_BHTS.new_ones(()) * (key_S <= chunk.query_index[:, None])
    mean_BHT1 = (scores_BHTS * seen_TS).sum(dim=-1, keepdim=True) / seen_TS.sum(dim=-1, keepdim=True)
    centred_BHTS = (scores_BHTS - mean_BHT1) * seen_TS
    # Covariance is linear in a frequency's part, so one product gives it for all frequencies.
    along_BHTK = q_BHTK * (centred_BHTS @ k_BHSK) / math.sqrt(q_BHTK.shape[-1])
    variance_BHT = centred_BHTS.square().sum(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    keys_BHTK = k_BHSK[:, :, -q_BHTK.shape[2] :]  # the last keys of a chunk are its queries' own
    return {
        "query_norm": q_BHTK[..., pairs_M2].norm(dim=-1),
        "key_norm": keys_BHTK[..., pairs_M2].norm(dim=-1),
        "score_share": along_BHTK[..., pairs_M2].sum(dim=-1) / variance_BHT[..., None],
    }
