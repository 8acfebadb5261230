"""How far back a model reads, by the gradient of a prediction.

Shapes: W windows, N inputs, D width.
"""

import contextlib
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.inspection.inspected import Inspected
from extrapolate.inspection.measurements.base import Measurement, Value, measurements, powers_of_two
from extrapolate.machine.limits import memory_limit
from extrapolate.model.model import Model

SHARE = 0.99  # of the gradient, as in the paper
# Memory is measured at these lengths, in tokens, in a third of a second. In shorter windows attention may be explicit.
MEASURED = (512, 1024)


@measurements.register("receptive-field")
class ReceptiveField(Measurement):
    """How many of the last tokens hold 99 % of the gradient of the window's last loss.

    The 2-norms of the gradient with respect to each input embedding are divided by their sum in the window, averaged
    over windows, and summed from the last token back.
    """

    quantities: ClassVar = {
        "cumulative": ("share", "The share of the gradient in the last `at` tokens."),
        "receptive_field": ("tokens", "The smallest number of last tokens that hold 99 % of it."),
        "reach": ("tokens", "The smallest number that holds all of it in every window."),
    }
    at = "the number of tokens, including the last input"
    source = "arXiv 2212.10356; the norm and the mean are our reading"

    @classmethod
    def refusal(cls, inspected: Inspected) -> str | None:
        if (reason := super().refusal(inspected)) is not None:
            return reason
        if inspected.length <= MEASURED[-1] or kept(inspected) < memory_limit(inspected.model.device.type):
            return None
        return f"a gradient through {inspected.length} tokens needs too much memory"

    @staticmethod
    def inputs(seq_len: int, length: int, windows: int) -> float:
        return 3 * windows * length

    @staticmethod
    def measure(inspected: Inspected) -> Iterator[Value]:
        shares_WN = []
        for tokens_N in inspected.tokens_WN:
            with _last_loss(inspected, tokens_N) as (loss, embedded_BND):
                (gradient_BND,) = torch.autograd.grad(loss, embedded_BND)
            size_N = gradient_BND[0].double().norm(dim=-1).cpu().numpy()
            shares_WN.append(size_N / size_N.sum())
            inspected.advance(3 * inspected.length)
        back_WN = np.stack(shares_WN)[:, ::-1]  # the last token first
        cumulative_WN = back_WN.cumsum(axis=1)
        for count in powers_of_two(inspected.length):
            yield Value("cumulative", cumulative_WN[:, count - 1], at=count)
        field = int(np.argmax(cumulative_WN.mean(axis=0) >= SHARE)) + 1
        yield Value("receptive_field", np.array([float(field)]))
        reach = int(np.flatnonzero(back_WN.any(axis=0)).max()) + 1
        yield Value("reach", np.array([float(reach)]))


def kept(inspected: Inspected) -> float:
    """Estimates the bytes kept for the gradient through a window as a N + b N^2, from two shorter windows.

    It depends on the encoding: a fused kernel keeps memory that grows with N, explicit scores and a bias with N^2.
    """
    near, far = MEASURED
    per_token, per_token_far = (kept_at(inspected, length) / length for length in MEASURED)
    slope = max(0.0, (per_token_far - per_token) / (far - near))
    return inspected.length * (per_token + slope * (inspected.length - near))


def kept_at(inspected: Inspected, length: int) -> int:
    """The bytes kept for the gradient through the first `length` tokens of a window, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in inspected.decoder.parameters()}
    size_of: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        size_of[storage.data_ptr()] = storage.nbytes()
        return tensor

    kept_tensors = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with kept_tensors, _last_loss(inspected, inspected.tokens_WN[0, : length + 1]):
        return sum(size for storage, size in size_of.items() if storage not in weights)


@contextlib.contextmanager
def _last_loss(inspected: Inspected, tokens_N: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The loss of a window's last target, and the embedded inputs, [1, N, D], to differentiate it by."""
    model = inspected.decoder
    with torch.enable_grad(), _weights_fixed(model):
        embedded_BND = model.embedding(tokens_N[None, :-1]).detach().requires_grad_()
        handle = model.embedding.register_forward_hook(lambda *_: embedded_BND)
        try:
            hidden_BND = model.hidden(tokens_N[None, :-1], inspected.setting, len(tokens_N) - 2)
        finally:
            handle.remove()
        yield F.cross_entropy(model.head(hidden_BND[:, -1]).float(), tokens_N[None, -1]), embedded_BND


@contextlib.contextmanager
def _weights_fixed(model: Model) -> Iterator[None]:
    """Disables gradients of the weights, which would take memory and time."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
