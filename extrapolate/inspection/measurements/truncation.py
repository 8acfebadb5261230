"""What a model predicts with its context cut short, compared with the whole context.

Shapes: W windows, P places of a window, R = W P contexts, t tokens of a context, V vocabulary.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.inspection.inspected import Inspected
from extrapolate.inspection.measurements.base import Measurement, Value, measurements, powers_of_two

PLACES = 4  # predictions to examine in a window


@measurements.register("truncation")
class Truncation(Measurement):
    """The distance in total variation between predictions from the last t tokens and from the whole context.

    If the distance is 0, the model ignores what lies further back than t. If not, the gain tells whether it uses that
    well or badly: it is how much lower the loss at the same places is with the whole context. Four predictions of each
    window are measured, spread over its last L/2 inputs.
    """

    quantities: ClassVar = {
        "tv": ("", "The distance: half the sum over the vocabulary of the absolute difference in probability."),
        "gain": (
            "nats per target",
            "The loss with the context cut minus that with all of it; below 0, far context does harm.",
        ),
        "loss": ("nats per target", "The loss with the context cut, or with all of it if `at` is empty."),
    }
    at = "t, the tokens of context that are left, including the last input"
    any_model = True

    @staticmethod
    def inputs(seq_len: int, length: int, windows: int) -> float:
        return windows * (length + PLACES * sum(cuts_of(length)))

    @staticmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        tokens_WN = inspected.tokens_WN
        place_P = places(inspected)
        target_R = tokens_WN[:, place_P + 1].flatten()
        batches = inspected.batches(len(tokens_WN), inspected.length)
        whole_RV = torch.cat([_predictions(inspected, tokens_WN[rows, :-1], place_P) for rows in batches])
        whole_R = F.nll_loss(whole_RV, target_R, reduction="none")
        yield Value("loss", _by_window(inspected, whole_R))
        for cut in cuts_of(inspected.length):
            short_RV = cut_predictions(inspected, place_P, cut)
            apart_R = 0.5 * (short_RV.exp() - whole_RV.exp()).abs().sum(dim=-1)
            yield Value("tv", _by_window(inspected, apart_R), at=cut)
            loss_R = F.nll_loss(short_RV, target_R, reduction="none")
            yield Value("loss", _by_window(inspected, loss_R), at=cut)
            yield Value("gain", _by_window(inspected, loss_R - whole_R), at=cut)


def cuts_of(length: int) -> list[int]:
    """1, 2, 4, ... below the length."""
    return [cut for cut in powers_of_two(length) if cut < length]


def places(inspected: Inspected) -> Tensor:
    """The indices of the inputs whose predictions are examined, including the last input, int64 [P]."""
    count = min(PLACES, len(inspected.query_index))
    step = len(inspected.query_index) // count
    return inspected.length - 1 - step * torch.arange(count, device=inspected.tokens_WN.device).flip(0)


def cut_predictions(inspected: Inspected, place_P: Tensor, cut: int) -> Tensor:
    """Log-probabilities from (at most) the last `cut` tokens up to each place, [R, V], window by window."""
    found = []
    for end in place_P.tolist():
        inputs_WN = inspected.tokens_WN[:, max(0, end + 1 - cut) : end + 1]
        last = torch.tensor([inputs_WN.shape[1] - 1], device=inputs_WN.device)
        rows = inspected.batches(*inputs_WN.shape)
        found.append(torch.cat([_predictions(inspected, inputs_WN[some], last) for some in rows]))
    return torch.stack(found, dim=1).flatten(0, 1)


@torch.inference_mode()
def _predictions(inspected: Inspected, inputs_BN: Tensor, place_P: Tensor) -> Tensor:
    """Log-probabilities at places of every window, float32 [B P, V]."""
    model, first = inspected.model, int(place_P[0])
    hidden_BND = model.hidden(inputs_BN, inspected.setting, first)
    inspected.advance(inputs_BN.numel())
    return model.head(hidden_BND[:, place_P - first].flatten(0, 1)).float().log_softmax(dim=-1)


def _by_window(inspected: Inspected, value_R: Tensor) -> np.ndarray:
    return value_R.view(len(inspected.tokens_WN), -1).double().mean(dim=1).cpu().numpy()
