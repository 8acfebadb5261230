"""Checks that a model gives nearly the same numbers under autocast as in float32, at far positions."""

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import torch

from extrapolate.contract.small_model import tokens
from extrapolate.errors import UserError
from extrapolate.model.hooks import culprit
from extrapolate.model.llama import Block
from extrapolate.model.model import Model

LENGTH = 1024  # tokens: bfloat16 cannot tell positions above 256 apart
SHARPER, LARGER = 4.0, 32.0  # queries and keys, and what attention adds, so that scores decide about the logits
# Of the norm of the logits. The encodings here lose 0.2 to 2.8 % with the seed of the checks, and positions in bfloat16
# 5 to 40 %. With other weights ExPE loses up to 6 %.
MOST = 0.04


@torch.no_grad()
def check_autocast(model: Model, file: Path) -> None:
    """Raises UserError if autocast changes the logits of LENGTH tokens, or of as many as are defined, by over MOST."""
    sharp = copy.deepcopy(model).eval()
    for block in cast(Iterable[Block], sharp.blocks):
        block.attention.qkv.weight[: sum(block.attention.sizes)] *= SHARPER
        block.attention.out.weight *= LARGER
    x_BT = tokens(sharp, min(LENGTH, *(encoding.max_length or LENGTH for encoding in sharp.encodings)))

    def share() -> float:
        exact_BTV = sharp(x_BT)
        with torch.autocast("cpu", torch.bfloat16):
            rounded_BTV = sharp(x_BT).float()
        return float((rounded_BTV - exact_BTV).norm() / exact_BTV.norm())

    if (lost := share()) > MOST:
        raise UserError(
            f"{file}: {culprit(sharp, lambda: share() > MOST)} makes autocast change the logits by {lost:.0%}: compute "
            "positions, angles, biases and sums within torch.autocast(x.device.type, enabled=False), and call .float() "
            "on what comes from queries, keys or layers"
        )
