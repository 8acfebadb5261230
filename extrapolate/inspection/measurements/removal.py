"""How much worse a model predicts if tokens at a distance are lost.

Shapes: W windows, B windows of a batch, N inputs, P scored places.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.inspection.inspected import Inspected
from extrapolate.inspection.measurements.base import Measurement, Value, measurements, powers_of_two


@measurements.register("removal")
class Removal(Measurement):
    """How much the loss rises when the tokens at a distance are replaced with random ones.

    The last L/8 targets of a window are scored. For d = 1, 4, 16, ..., the tokens d to 4d - 1 before their first input
    are replaced with tokens drawn from all windows, so their content is lost but no other token moves.
    """

    quantities: ClassVar = {
        "rise": ("nats per target", "The loss with these tokens replaced minus the loss of the text."),
        "loss": ("nats per target", "The loss of the text, with `at` empty."),
    }
    at = "d, in tokens"
    any_model = True

    @staticmethod
    def inputs(seq_len: int, length: int, windows: int) -> float:
        return windows * length * (1 + len(distances_of(seq_len, length)))

    @staticmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        first = first_scored(inspected.seq_len, inspected.length)
        whole_W = losses(inspected, inspected.tokens_WN, first)
        yield Value("loss", whole_W)
        for distance in distances_of(inspected.seq_len, inspected.length):
            gone = slice(max(0, first + 1 - 4 * distance), first + 1 - distance)
            changed_WN = inspected.tokens_WN.clone()
            changed_WN[:, gone] = inspected.random_tokens[:, gone]
            yield Value("rise", losses(inspected, changed_WN, first) - whole_W, at=distance)


def first_scored(seq_len: int, length: int) -> int:
    """The index of the first input whose target is scored."""
    return length - min(length, max(1, seq_len // 8))


def distances_of(seq_len: int, length: int) -> list[int]:
    """1, 4, 16, ... up to the number of tokens before the first scored input."""
    return powers_of_two(first_scored(seq_len, length))[::2]


@torch.inference_mode()
def losses(inspected: Inspected, tokens_WN: Tensor, first: int) -> np.ndarray:
    """The mean loss of the targets from input `first` on, in each window, nats, float64 [W]."""
    found = []
    for rows in inspected.batches(len(tokens_WN), inspected.length):
        inputs_BN = tokens_WN[rows, :-1]
        hidden_BPD = inspected.model.hidden(inputs_BN, inspected.setting, first)
        logits_BPV = inspected.model.head(hidden_BPD.flatten(0, 1)).float()
        loss_BP = F.cross_entropy(logits_BPV, tokens_WN[rows, first + 1 :].flatten(), reduction="none")
        found.append(loss_BP.view(len(inputs_BN), -1).double().mean(dim=1))
        inspected.advance(inputs_BN.numel())
    return torch.cat(found).cpu().numpy()
