"""Attention with pretended positions of pairs: several rotations under one softmax.

Shapes as in attention.py.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from extrapolate.encodings.base import Encoding
from extrapolate.encodings.plan import Branch, Plan
from extrapolate.model.attention import Scoring, chunk_context, explicit_scores, weights_of


@dataclass(frozen=True)
class Rotated:
    """A branch's queries and keys at their pretended positions."""

    branch: Branch
    q_BHTK: Tensor
    k_BHTK: Tensor
    query_pos_T: Tensor
    key_pos_T: Tensor


def branches_of(plan: Plan, q_BHTK: Tensor, k_BGTK: Tensor, encoding: Encoding, state: Any) -> list[Rotated]:
    """Rotates queries and keys for each branch of the plan's pairs."""
    assert plan.pairs is not None
    index_T = torch.arange(q_BHTK.shape[2], dtype=torch.float32, device=q_BHTK.device)
    groups = q_BHTK.shape[1] // k_BGTK.shape[1]
    made = []
    for branch in plan.pairs.branches():
        query_pos_T = branch.queries(index_T) * plan.position_scale
        key_pos_T = branch.keys(index_T) * plan.position_scale
        own = slowed(encoding, branch, plan)
        q, k = own.rotate(q_BHTK, k_BGTK, query_pos_T, key_pos_T, state)
        if own is not encoding and branch.unscaled:
            q = _turned_on(q, encoding, own, branch.unscaled * plan.position_scale)
        made.append(Rotated(branch, q, k.repeat_interleave(groups, dim=1), query_pos_T, key_pos_T))
    return made


def slowed(encoding: Encoding, branch: Branch, plan: Plan) -> Encoding:
    """A layer's encoding, already changed by the plan, with a branch's own frequencies."""
    if not branch.frequency_scale:
        return encoding
    of_plan = plan.frequency_scale or (1.0,) * len(branch.frequency_scale)
    both = tuple(one * other for one, other in zip(of_plan, branch.frequency_scale, strict=True))
    return encoding.extended(replace(plan, frequency_scale=both))


def _turned_on(q_BHTK: Tensor, encoding: Encoding, slower: Encoding, distance: float) -> Tensor:
    """Turns queries of a slower encoding further, by what it lags behind over a distance."""
    turns = _lag(encoding, slower, distance)
    if turns is None:
        return q_BHTK
    cos_M, sin_M, first_M, second_M = (x.to(q_BHTK.device, non_blocking=True) for x in turns)
    a, b = q_BHTK[..., first_M].float(), q_BHTK[..., second_M].float()
    turned = q_BHTK.float().index_copy(-1, first_M, a * cos_M - b * sin_M)
    return turned.index_copy(-1, second_M, b * cos_M + a * sin_M).to(q_BHTK.dtype)


def _lag(encoding: Encoding, slower: Encoding, distance: float) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """The cosine and sine of each pair's lag, and its two channels, on the CPU; None without rotation."""
    plain, slow = encoding.rotations(), slower.rotations()
    if plain is None or slow is None:
        return None
    angle_M = distance * (plain.frequency_M - slow.frequency_M)
    first_M, second_M = plain.channel_M2.unbind(-1)
    return encoding.rounded(angle_M.cos()), encoding.rounded(angle_M.sin()), first_M, second_M


def attend_branches(branches: list[Rotated], v_BGTK: Tensor, scoring: Scoring) -> Tensor:
    """Causal attention over the pairs that some branch sees, in chunks of queries. Returns [B, H, T - first_wanted, K].

    The branches' positions replace those of the scoring.
    """
    encoding, state = scoring.encoding, scoring.state
    heads, length = branches[0].q_BHTK.shape[1:3]
    v_BHTK = v_BGTK.repeat_interleave(heads // v_BGTK.shape[1], dim=1)
    outputs, chunks = [], scoring.chunks(length)
    for start, end in chunks:
        scores_BHTS: Tensor | None = None
        for rotated in branches:
            context = chunk_context(encoding, rotated.query_pos_T, rotated.key_pos_T, state, start, end)
            queries, keys = context.queries, context.keys
            seen_TS = _seen(rotated.branch, queries, keys, v_BHTK.device)
            if seen_TS is None:
                continue
            own = explicit_scores(
                rotated.q_BHTK[:, :, queries],
                rotated.k_BHTK[:, :, keys],
                encoding,
                context,
                scoring.scale_of(queries),
            ).masked_fill(~seen_TS, float("-inf"))
            scores_BHTS = own if scores_BHTS is None else torch.where(seen_TS, own, scores_BHTS)
        assert scores_BHTS is not None
        weight_BHTS = weights_of(encoding, scores_BHTS, context, scoring.sink_H)
        if scoring.observer is not None:
            scoring.observer.attended(encoding.dims.layer, None, None, weight_BHTS, queries, keys)
        outputs.append(weight_BHTS.to(v_BHTK.dtype) @ v_BHTK[:, :, keys])
    return torch.cat(outputs, dim=2)[:, :, scoring.first_wanted - chunks[0][0] :]


def _seen(branch: Branch, queries: slice, keys: slice, device: torch.device) -> Tensor | None:
    """Whether the branch's queries attend to its keys, [T, S]; None if no pair is seen."""

    def seen_on(device: torch.device) -> Tensor:
        index = torch.arange(keys.start, keys.stop, device=device)
        return branch.seen(index[queries.start - keys.start :, None], index[None, :])

    seen_TS = seen_on(torch.device("cpu"))  # `any` on a GPU would wait for it
    if not seen_TS.any():
        return None
    return seen_TS if device.type == "cpu" else seen_on(device)
