"""Checks that a token's loss does not depend on later tokens, and does depend on earlier ones.

Shapes: T tokens, D width.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.contract.small_model import resolved_factor, tokens
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.model.causality import check_in_both_modes, culprit
from extrapolate.model.model import Model

FACTORS = (1, 4)


def check_causality(model: Model, file: Path, factor: int) -> None:
    """Raises UserError if a token depends on later tokens or other windows, or its loss ignores earlier tokens.

    Checks windows of factor times L, or the longest for which the encoding is defined. The gradient of the loss must be
    nonzero at the previous token and, unless attention windows are shorter, somewhere further back than L/2.
    """
    length = resolved_factor(model, factor)
    if factor == 1:
        model.begin_step(0.0)
    try:
        check_in_both_modes(model, PLAIN, length, file)
    finally:
        model.begin_step(1.0)
    for place in sorted({length // 2, length - 1}):
        _check_sight(model, file, length, place)


def _check_sight(model: Model, file: Path, length: int, place: int) -> None:
    half = model.seq_len // 2
    before, far = slice(place - 1, place), slice(max(1, place - half))

    def seen(part: slice) -> bool:
        return bool(gradient_by_token(model, length, place)[part].any())

    if not seen(before):
        raise UserError(
            f"{file}: {culprit(model, lambda: seen(before))} keeps token {place} from seeing the token "
            f"before it, at {length} tokens"
        )
    if half < _sight(model) and not seen(far):
        raise UserError(
            f"{file}: {culprit(model, lambda: seen(far))} keeps token {place} from seeing any token that "
            f"is {half} tokens back or more, at {length} tokens; if that is intended, say so in the class: window = "
            "16, in tokens"
        )


def _sight(model: Model) -> float:
    """How many tokens back the last layer can see, given the windows of all layers."""
    windows = [encoding.window for encoding in model.encodings]
    return sum(float("inf") if window is None else window - 1 for window in windows)


def gradient_by_token(model: Model, length: int, place: int) -> Tensor:
    """The absolute gradient of the loss at one place with respect to each token's embedding, [T]."""
    x_BT = tokens(model, length + 1, rows=1)
    embedded_BTD = model.embedding(x_BT[:, :-1]).detach().requires_grad_()
    handle = model.embedding.register_forward_hook(lambda *_: embedded_BTD)
    try:
        with torch.enable_grad():
            logits_BTV = model(x_BT[:, :-1])
            loss = F.cross_entropy(logits_BTV[0, place], x_BT[0, place + 1])
    finally:
        handle.remove()
    (gradient_BTD,) = torch.autograd.grad(loss, embedded_BTD)
    return gradient_BTD[0].abs().sum(dim=-1)
