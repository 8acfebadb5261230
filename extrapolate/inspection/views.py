"""What an encoding does with each position, read from its hooks and never from its name.

Shapes: T positions, C dimensions (channels or heads), D width, H heads, K head dim, S keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from extrapolate.encodings.base import Encoding, scaled_product
from extrapolate.encodings.plan import PLAIN, Branch, Plan
from extrapolate.model.attention import chunk_context, explicit_scores
from extrapolate.model.branches import branches_of
from extrapolate.model.model import Model


@dataclass(frozen=True)
class View:
    """The values of one hook at each position: values_TC, with a column for each of `dimensions`.

    place: where the values enter the model. kind: what a dimension is, `channel` or `head`.
    """

    place: str
    kind: str
    dimensions: tuple[int, ...]
    values_TC: Tensor


@torch.no_grad()
def views(model: Model, length: int) -> list[View]:
    """Every place in the first layer where position enters, in windows of `length` tokens.

    Changes to the residual stream are shown for a stream of zeros, changes to queries and keys for vectors of ones, and
    changes to scores for the last query of the window.
    """
    encoding, dims = model.encoding, model.dims
    pos_T = encoding.positions(torch.arange(length, dtype=torch.float32))
    zero_BTD = torch.zeros(1, length, dims.width)
    one_BHTK = torch.ones(1, dims.heads, length, dims.head_dim)
    found = [
        _written("added to the embedding", encoding.embed(zero_BTD, pos_T)[0]),
        _written("what W_q and W_k read", encoding.attention_input(zero_BTD, pos_T)[0][0]),
    ]
    state = encoding.prepare(torch.ones(1, length, dims.width))
    q_BHTK, k_BHTK = encoding.rotate(one_BHTK, one_BHTK, pos_T, pos_T, state)
    if not torch.equal(q_BHTK, one_BHTK):
        found.append(View("queries, head 0", "channel", tuple(range(q_BHTK.shape[-1])), q_BHTK[0, 0]))
    bias_HTS = encoding.bias(pos_T[-1:], pos_T)
    if bias_HTS is not None:
        found.append(_by_head("bias of the last query", bias_HTS.expand(dims.heads, -1, -1)[:, 0]))
    context = chunk_context(encoding, pos_T, pos_T, state, length - 1, length)
    last_BHTK, seen_BHSK = q_BHTK[:, :, -1:], k_BHTK[:, :, context.keys]
    scores_BHTS = encoding.scores(last_BHTK, seen_BHSK, context)
    if scores_BHTS is not None:
        added_HS = (scores_BHTS.float() - scaled_product(last_BHTK, seen_BHSK))[0, :, 0]
        found.append(_by_head("scores of the last query", torch.nn.functional.pad(added_HS, (context.keys.start, 0))))
    return [view for view in found if view.dimensions]


def _written(place: str, values_TD: Tensor) -> View:
    """A view of the channels that are written."""
    channels = values_TD.ne(0).any(dim=0).nonzero().flatten()
    return View(place, "channel", tuple(channels.tolist()), values_TD[:, channels])


def _by_head(place: str, values_HS: Tensor) -> View:
    return View(place, "head", tuple(range(len(values_HS))), values_HS.T)


@torch.no_grad()
def scores(model: Model, length: int, plan: Plan = PLAIN) -> Tensor | None:
    """The scores of the last token of a window with each token, [H, S], from itself to the farthest.

    Except for the encoding, queries and keys are the same everywhere: channels that the encoding writes before W_q and
    W_k have what it writes, the others have 1, and W_q and W_k are the identity. plan: applied at inference. A score is
    NaN if the last token does not see the other. Returns None if windows of this length are not defined, or the first
    layer has something in place of attention.
    """
    if not (model.defined_at(length, plan) and model.encoding.attends()):
        return None
    plan = plan.everywhere(model.encodings).of_layer(model.encoding)
    encoding, dims = model.encoding.extended(plan), model.dims
    pos_T = encoding.positions(torch.arange(length, dtype=torch.float32)) * plan.position_scale
    embedded_BTD = encoding.embed(torch.zeros(1, length, dims.width), pos_T)
    read_BTD = encoding.attention_input(embedded_BTD, pos_T)[0]
    x_BTD = torch.where(read_BTD.ne(0).any(dim=1, keepdim=True), read_BTD, 1.0)
    shared = min(dims.width, dims.heads * dims.head_dim)  # an imported model may have other widths in attention
    channels_BTC = torch.ones(1, length, dims.heads * dims.head_dim)
    channels_BTC[..., :shared] = x_BTD[..., :shared]
    q_BHTK = channels_BTC.unflatten(-1, (dims.heads, dims.head_dim)).transpose(1, 2)
    found_HS = _of_last(encoding, plan, q_BHTK, pos_T)
    return found_HS.masked_fill(found_HS.isinf(), float("nan")).flip(-1)


def _of_last(encoding: Encoding, plan: Plan, q_BHTK: Tensor, pos_T: Tensor) -> Tensor:
    """The scores of the last query, [H, S]; -inf for keys that it does not see."""
    length = len(pos_T)
    state = encoding.prepare(torch.ones(1, length, encoding.dims.width))
    scale_HT = plan.query_scale(length, pos_T.device)
    last_HT = None if scale_HT is None else scale_HT[:, -1:]
    passes: list[tuple[Tensor, Tensor, Tensor, Tensor, Branch | None]]
    if plan.pairs is None:
        passes = [(*encoding.rotate(q_BHTK, q_BHTK, pos_T, pos_T, state), pos_T, pos_T, None)]
    else:
        made = branches_of(plan, q_BHTK, q_BHTK, encoding, state)
        passes = [(one.q_BHTK, one.k_BHTK, one.query_pos_T, one.key_pos_T, one.branch) for one in made]
    found_HS = torch.full((q_BHTK.shape[1], length), float("-inf"))
    for q, k, query_pos_T, key_pos_T, branch in passes:
        context = chunk_context(encoding, query_pos_T, key_pos_T, state, length - 1, length)
        own_HS = explicit_scores(q[:, :, -1:], k[:, :, context.keys], encoding, context, last_HT)[0, :, 0]
        index_S = torch.arange(length)[context.keys]
        seen_S = torch.ones_like(index_S, dtype=torch.bool) if branch is None else branch.seen(index_S[-1:], index_S)
        found_HS[:, context.keys] = torch.where(seen_S, own_HS, found_HS[:, context.keys])
    return found_HS
