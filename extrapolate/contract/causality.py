"""Checks that a token depends on no later token, and does depend on earlier ones."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from extrapolate.contract.small_model import resolved_factor, tokens
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.model.causality import check_causal
from extrapolate.model.hooks import culprit
from extrapolate.model.model import Model

FACTORS = (1, 4)


def check_causality(model: Model, file: Path, factor: int) -> None:
    """Raises UserError if a token depends on later tokens or other windows, or ignores earlier tokens.

    Checks windows of factor times L, or the longest for which the encoding is defined. The gradient of a logit must be
    nonzero at the previous token and, unless attention windows are shorter, somewhere further back than L/2.
    """
    length, half = resolved_factor(model, factor), model.seq_len // 2
    check_causal(model, PLAIN, length, file)
    sight = sum(length if encoding.window is None else encoding.window - 1 for encoding in model.encodings)
    for place in sorted({length // 2, length - 1}):
        before, far = (
            partial(_ignored, model, length, place, part)
            for part in (slice(place - 1, place), slice(max(1, place - half)))
        )
        if before():
            hook = culprit(model, before)
            raise UserError(f"{file}: {hook} keeps token {place} from seeing the token before it, at {length} tokens")
        if half < sight and far():
            raise UserError(
                f"{file}: {culprit(model, far)} keeps token {place} from seeing any token that is {half} tokens back "
                f"or more, at {length} tokens; if that is intended, say so in the class: window = 16, in tokens"
            )


@torch.enable_grad()
def _ignored(model: Model, length: int, place: int, part: slice) -> bool:
    """Whether a logit at a place has no gradient at the embeddings of some tokens."""
    embedded: list[Tensor] = []
    handle = model.embedding.register_forward_hook(lambda *call: embedded.append(call[2]))
    try:
        logit = model(tokens(model, length, rows=1))[0, place, 0]
    finally:
        handle.remove()
    (gradient_BTD,) = torch.autograd.grad(logit, embedded)
    return not gradient_BTD[0, part].any()
