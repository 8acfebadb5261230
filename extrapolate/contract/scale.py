"""Checks that no encoding gives a model a better start: apart from position, all sizes are as without an encoding.

Shapes: as in encodings/base.py.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from extrapolate.contract.small_model import tokens
from extrapolate.encodings.base import EMBEDDED
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.model.attention import ResolvedPlan
from extrapolate.model.hooks import differ
from extrapolate.model.model import Model

TOLERANCE = 0.05
ADVICE = (
    "it would start better or worse than other encodings, wherever tokens are. If the source does that, name the "
    "hook in rescales, and say in caption what it does"
)


@torch.no_grad()
def check_scale(model: Model, plain: Model, file: Path) -> None:
    """Raises UserError if a new model differs from `plain`, a model without an encoding, in more than position.

    Both are in eval mode and made from the same seed. With the encoding of `plain`, the model must give its logits, so
    that its weights have the same sizes. Doubling a hook's input must raise its output by that input, whatever it adds:
    that reveals a factor or a norm.
    """
    encoding = model.encoding
    if encoding.rescales and not encoding.caption:
        raise UserError(f"{file}: rescales names {', '.join(sorted(encoding.rescales))}: say in caption what it does")
    for hook, gain in _gains(model).items():
        if hook not in encoding.rescales and abs(gain - 1) > TOLERANCE:
            raise UserError(f"{file}: {hook} multiplies its input by {gain:.2f}; expected 1, for {ADVICE}")
    x_BT = tokens(model, model.seq_len)
    if differ(model(x_BT, ResolvedPlan(PLAIN, tuple(plain.encodings))), plain(x_BT)):
        raise UserError(f"{file}: its model starts with other weights than one without an encoding; expected the same")


def _gains(model: Model) -> Mapping[str, float]:
    """The factor by which each hook multiplies its input, in the layer where it is farthest from 1."""
    generator, dims = torch.Generator().manual_seed(1), model.dims
    pos_T = model.encoding.positions(torch.arange(model.seq_len, dtype=torch.float32))
    x_BTD = EMBEDDED * torch.randn(2, model.seq_len, dims.width, generator=generator)
    k_BGTK = torch.randn(2, model.config.kv_heads, model.seq_len, dims.head_dim, generator=generator)
    q_BHTK = k_BGTK.repeat_interleave(dims.heads // model.config.kv_heads, dim=1)
    embedded, doubled = (model.encoding.embed(factor * x_BTD, pos_T) for factor in (1, 2))
    found = {"embed": [_size(doubled - embedded) / _size(x_BTD)], "attention_input": [], "rotate": []}
    for encoding in model.encodings:
        value, doubled = (encoding.attention_input(factor * x_BTD, pos_T)[1] for factor in (1, 2))
        found["attention_input"].append(_size(doubled - value) / _size(x_BTD))
        # Rotations keep a token's score with itself. All scores are divided by the root of the head's width.
        state = encoding.prepare(x_BTD)
        (q, k), (q2, k2) = (encoding.rotate(f * q_BHTK, f * k_BGTK, pos_T, pos_T, state) for f in (1, 2))
        own_BHT = ((q2 - q) * (k2 - k).repeat_interleave(q.shape[1] // k.shape[1], dim=1)).sum(dim=-1)
        widened = math.sqrt(q.shape[-1] / dims.head_dim)
        found["rotate"].append((own_BHT.sum() / q_BHTK.square().sum()).item() / widened)
    return {hook: max(gains, key=lambda gain: abs(gain - 1)) for hook, gains in found.items()}


def _size(x: Tensor) -> float:
    """The root mean square."""
    return x.float().square().mean().sqrt().item()
