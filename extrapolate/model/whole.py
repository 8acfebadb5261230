"""Checks that a model computes the same in parts as at once, and that what its encoding accepts changes its numbers."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from extrapolate.encodings.base import FREQUENCIES, MASK, POSITIONS
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.model.cache import Kept
from extrapolate.model.hooks import culprit, differ
from extrapolate.model.model import Model

LENGTH, CHUNK, PREFILLED = 32, 7, 24  # tokens of a window, queries of a chunk, tokens before the first that is decoded
WINDOW = 5  # keys, so that a chunk of queries does not begin with the first key


@torch.no_grad()
def check_chunks(model: Model, owner: object) -> None:
    """Raises UserError if chunks of queries give other numbers than all at once. Leaves the model in eval mode."""
    tokens_BT = _tokens(model.eval())

    def off(plan: Plan) -> bool:
        setting = model.resolve(plan)
        some, every = (replace(setting, queries_per_chunk=size) for size in (CHUNK, LENGTH))
        return differ(model.hidden(tokens_BT, some), model.hidden(tokens_BT, every))

    windowed = all(MASK in encoding.accepts for encoding in model.encodings)
    for plan in (PLAIN, Plan(window=WINDOW))[: 1 + windowed]:
        if off(plan):
            raise UserError(
                f"{owner}: {culprit(model, partial(off, plan))} gives other numbers for some queries at a time than "
                "for all: take places from pos_T, pos_S and context, not from a length or arange"
            )


@torch.no_grad()
def check_cache(model: Model, owner: object) -> None:
    """Raises UserError if tokens that follow cached ones get other numbers than in one pass."""
    tokens_BT = _tokens(model.eval())
    first = min(PREFILLED, tokens_BT.shape[1] - 1)
    index_T, positions = torch.arange(tokens_BT.shape[1], dtype=torch.float32), model.encoding.positions
    alike = positions(index_T)[:first].equal(positions(index_T[:first]))
    if not (alike and all(encoding.attends() for encoding in model.encodings)):
        return  # text is generated without a cache

    def off() -> bool:
        cache, parts = Kept(), []
        for part_BT in (tokens_BT[:, :first], *tokens_BT[:, first:].split(1, dim=1)):
            parts.append(model.hidden(part_BT, cache=cache))
            cache.length += part_BT.shape[1]
        return differ(torch.cat(parts, dim=1), model.hidden(tokens_BT))

    if off():
        raise UserError(
            f"{owner}: {culprit(model, off)} gives a token other numbers when those before it are in a cache: take "
            "positions from pos_T, not from a length or arange, and mix tokens in prepare or rotate, which get all"
        )


@torch.no_grad()
def check_extensions(model: Model, owner: object) -> None:
    """Raises UserError if a change that the encoding accepts changes nothing. Leaves the model in eval mode."""
    tokens_BT = _tokens(model.eval())
    plain_BTD = model.hidden(tokens_BT)
    tried = {POSITIONS: Plan(position_scale=0.5), MASK: Plan(window=1)}
    if FREQUENCIES in model.encoding.accepts:
        if (spectrum := model.encoding.spectrum()) is None:
            raise UserError(f"{owner}: accepts has FREQUENCIES: let spectrum return Spectrum(theta, count), not None")
        tried[FREQUENCIES] = Plan(frequency_scale=(0.5,) * spectrum.count)
    for what, plan in tried.items():
        accepted = all(what in encoding.accepts for encoding in model.encodings)
        if accepted and torch.equal(model.hidden(tokens_BT, plan), plain_BTD):
            raise UserError(
                f"{owner}: extensions that change {what} would change nothing: take positions from pos_T and pos_S, "
                "not from a length, arange or cache, and let extended(plan) keep its changes; if there is nothing to "
                "change, leave it out of accepts: frozenset({LOGITS}) has logits alone"
            )


def _tokens(model: Model) -> Tensor:
    length = min(LENGTH, *(encoding.max_length or LENGTH for encoding in model.encodings))
    return torch.randint(model.vocab_size, (2, length), generator=torch.Generator().manual_seed(1)).to(model.device)
