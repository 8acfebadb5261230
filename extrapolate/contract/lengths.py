"""Checks long windows: an encoding reaches 16 L or declares where it ends."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from extrapolate.contract.small_model import failure, resolved_factor, tokens
from extrapolate.errors import UserError
from extrapolate.model.hooks import culprit
from extrapolate.model.model import Model

FACTORS = (1, 2, 4, 8, 16)


def check_far(model: Model, file: Path) -> None:
    """Raises UserError if windows of up to 16 L fail or give numbers that are not finite.

    An encoding that ends earlier must say so by its max_length, which is at least L. The gradient is checked at the
    longest window.
    """
    ends = [encoding.max_length for encoding in model.encodings]
    if (end := min((e for e in ends if e is not None), default=None)) is not None:
        if end < model.seq_len:
            raise UserError(f"{file}: max_length is {end}, and the training length is {model.seq_len} tokens")
        if ends[0] != end:
            raise UserError(f"{file}: max_length is {end} in one layer and {ends[0]} in the first; expected the same")
    asked = sorted({resolved_factor(model, factor) for factor in FACTORS})
    for length in asked:
        x_BT, last = tokens(model, length + 1, rows=1), length == asked[-1]
        case = f" at {length} tokens, {length / model.seq_len:g} times L"
        try:
            wrong = _not_finite(model, x_BT, last)
        except Exception as error:
            hint = "" if length == model.seq_len else f"; if it ends at {model.seq_len}, set self.max_length"
            raise UserError(f"{failure(error, file, case)}{hint}") from error
        if wrong:
            hook = culprit(model, partial(_not_finite, model, x_BT, last))
            raise UserError(f"{file}: {hook} makes {wrong} nan or infinite{case}")


def _not_finite(model: Model, x_BT: Tensor, with_gradient: bool) -> str:
    """What is not finite, the logits or a gradient of the loss; empty if everything is finite."""
    with torch.no_grad():
        if not model(x_BT[:, :-1]).isfinite().all():
            return "the logits"
    if not with_gradient:
        return ""
    with torch.enable_grad():
        loss = model.loss(x_BT[:, :-1], x_BT[:, 1:])
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    found = (name for name, one in zip(trained, gradients, strict=True) if one is not None and not one.isfinite().all())
    return next((f"the gradient of {name}" for name in found), "")
