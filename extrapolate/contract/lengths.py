"""Checks long windows: chunks of queries change nothing, and an encoding reaches 16 L or declares where it ends."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from extrapolate.contract.small_model import failure, resolved_factor, tokens
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.model.attention import QUERIES_PER_CHUNK
from extrapolate.model.causality import culprit
from extrapolate.model.hooks import differ
from extrapolate.model.model import Model

FACTORS = (1, 2, 4, 8, 16)


def check_model_chunks(model: Model, file: Path) -> None:
    """Raises UserError if the logits change when attention computes queries in chunks rather than all at once.

    Models compute QUERIES_PER_CHUNK queries at a time, which in a short window is all of them.
    """
    two_chunks = 2 * QUERIES_PER_CHUNK
    length = min(two_chunks, resolved_factor(model, -(-two_chunks // model.seq_len)))
    x_BT = tokens(model, length)
    if not _chunks_differ(model, x_BT):
        return
    hook = culprit(model, lambda: not _chunks_differ(model, x_BT))
    raise UserError(
        f"{file}: {hook} gives other numbers when attention asks for {QUERIES_PER_CHUNK} of {length} queries at a "
        "time than when it asks for all: take places from pos_T, pos_S and context, not from a length or arange"
    )


def _chunks_differ(model: Model, x_BT: Tensor) -> bool:
    setting = model.setting(PLAIN)
    with torch.no_grad():
        chunked = model(x_BT, setting)
        whole = model(x_BT, replace(setting, queries_per_chunk=x_BT.shape[1]))
    return differ(chunked, whole)


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
            hook = culprit(model, partial(_finite, model, x_BT, last))
            raise UserError(f"{file}: {hook} makes {wrong} nan or infinite{case}")


def _finite(model: Model, x_BT: Tensor, with_gradient: bool) -> bool:
    return not _not_finite(model, x_BT, with_gradient)


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
    for name, gradient in zip(trained, gradients, strict=True):
        if gradient is not None and not gradient.isfinite().all():
            return f"the gradient of {name}"
    return ""
