"""Scores the targets of windows: their negative log-likelihood, and whether they are the likeliest token.

Shapes: W windows, B windows of a batch, T inputs and the next token, P scored places, N = B P, R of these at a time,
D width, V vocabulary, A tokens scored at the last place, C candidates, K numbers per target: its loss and, on request,
whether it is the likeliest token, its margin over the candidates, and whether it is likelier than all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.data.store import Split
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.evaluation.memory import OutOfMemoryError, ShrinkOnOOM
from extrapolate.evaluation.precision import storage_of
from extrapolate.evaluation.protocols.base import Windows, protocols
from extrapolate.machine.devices import to_device
from extrapolate.machine.distributed import working
from extrapolate.model.language_model import LanguageModel

BATCH_TOKENS = 8192  # default number of inputs in a forward pass; at least one window
# As much as a CPU computes in seconds, so that the first losses of a large model come soon.
LARGE, BATCH_TOKENS_OF_LARGE = 50_000_000, 1024  # parameters, inputs
LOGIT_ELEMENTS = 2**20  # logits held at a time: 4 MiB in float32, which stay in the cache

# Called after a batch with its inputs and the mean loss of its targets, nats; NaN on a GPU, which would have to wait.
OnBatch = Callable[[int, float], None]


def ignored(inputs: int, loss: float) -> None:
    """An `OnBatch` that does nothing."""


def target_losses(
    model: LanguageModel,
    split: Split,
    windows: Windows,
    plan: Plan = PLAIN,
    *,
    places_P: np.ndarray | None = None,
    precision: str = "fp32",
    batch_tokens: int | None = None,
    progress: OnBatch = ignored,
) -> np.ndarray:
    """The loss of each target, nats, float32 [W, scored]; with places_P, at these places of every window, [W, P].

    `progress` is called after every batch.
    """
    if places_P is None:
        places_P = np.arange(windows.length - windows.scored, windows.length)
    return scores_at(
        model, partial(windows.tokens, split), len(windows.start_W), windows.length, places_P, plan,
        precision=precision, batch_tokens=batch_tokens, progress=progress,
    ).loss_WP  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """Scores of the true next token at P places of W windows, given the true tokens before it.

    loss_WP: its negative log-likelihood, nats, float32. likeliest_WP, bool: whether no token is likelier; None unless
    requested.

    With candidates, else None: margin_WP, float32, is the mean loss of the other candidates minus its own, nats, and
    chosen_WP, float32, is 1 if its loss is below that of every other candidate, else 0. Both are NaN if there is no
    other candidate.
    """

    loss_WP: np.ndarray
    likeliest_WP: np.ndarray | None
    margin_WP: np.ndarray | None = None
    chosen_WP: np.ndarray | None = None


@torch.inference_mode()
def scores_at(
    model: LanguageModel,
    tokens_of: Callable[[slice], np.ndarray],
    count: int,
    length: int,
    places_P: np.ndarray,
    plan: Plan,
    *,
    precision: str,
    likeliest: bool = False,
    last_WA: np.ndarray | None = None,
    candidates_WC: np.ndarray | None = None,
    batch_tokens: int | None = None,
    progress: OnBatch,
) -> Scores:
    """Scores the same places of `count` windows of `length` inputs, in batches of `batch_tokens` inputs (default: see
    BATCH_TOKENS).

    `tokens_of` gives the tokens of some of the windows, [B, length + 1]. places_P: indices of the last input seen,
    ascending. last_WA: tokens to score after the last place, instead of the window's own; scores are then
    [W, P - 1 + A]. candidates_WC: distinct tokens to compare every target of a window with; -1 stands for none.

    Earlier tokens enter the last block only through their keys and values, and logits are computed only at these
    places; memory grows with the window's length, not with its square. Processes that work together take batches in
    turn, and all return all scores.
    """
    ranks = working()
    device = model.device
    first = int(places_P[0])
    wanted_P = to_device(torch.from_numpy(places_P), device)
    everything = len(places_P) == length - first
    # Stays on the device until the end: fetching each batch would wait for it.
    others = 0 if last_WA is None else last_WA.shape[1] - 1
    numbers = 1 + likeliest + (0 if candidates_WC is None else 2)
    found_KWP = torch.zeros(numbers, count, len(places_P) + others, device=device)

    def batch(row: int, end: int, windows: int, setting: Any) -> tuple[int, float]:
        """Scores some windows from number `row` on, up to `end`, and returns how many, with their mean loss."""
        rows = slice(row, min(row + windows, end))
        tokens_BT = to_device(torch.from_numpy(tokens_of(rows).astype(np.int64)), device)
        targets_BP = tokens_BT[:, wanted_P + 1]
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            hidden_BPD = model.hidden(tokens_BT[:, :-1], setting, first)
            if not everything:
                hidden_BPD = hidden_BPD[:, wanted_P - first]
            if last_WA is not None:
                last_BA = to_device(torch.from_numpy(last_WA[rows].astype(np.int64)), device)
                targets_BP = torch.cat([targets_BP[:, :-1], last_BA], dim=1)
                hidden_BPD = torch.cat([hidden_BPD, hidden_BPD[:, -1:].expand(-1, others, -1)], dim=1)
            candidates_NC = None
            if candidates_WC is not None:
                candidates_BC = to_device(torch.from_numpy(candidates_WC[rows].astype(np.int64)), device)
                candidates_NC = candidates_BC.repeat_interleave(targets_BP.shape[1], dim=0)
            found_KN = _against(model, hidden_BPD.flatten(0, 1), targets_BP.flatten(), likeliest, candidates_NC)
        found_KWP[:, rows] = found_KN.unflatten(1, targets_BP.shape)
        return len(tokens_BT), float(found_KN[0].mean()) if device.type == "cpu" else math.nan

    room = ShrinkOnOOM(length, windows_at_once(model, length, batch_tokens), model.resolve(plan, storage_of(precision)))
    lacking: OutOfMemoryError | None = None
    try:
        shares = ranks.shares(count, room.windows)
        own = sum(end - first for first, end in shares)
        for row, end in shares:
            while row < end:
                done, loss = room.enough_for(partial(batch, row, end))
                progress(done * length * count // own, loss)  # the other processes' share included
                row += done
    except OutOfMemoryError as error:
        lacking = error
    if sum(ranks.sums(lacking is not None)):
        raise lacking or OutOfMemoryError(length, "")
    loss_WP, *more_WP = ranks.add_up(found_KWP.cpu().numpy())
    likeliest_WP = more_WP.pop(0) > 0 if likeliest else None
    return Scores(loss_WP, likeliest_WP, *more_WP)


def windows_at_once(model: LanguageModel, length: int, batch_tokens: int | None = None) -> int:
    """The windows of a batch of `batch_tokens` inputs (default: see BATCH_TOKENS), if memory suffices."""
    large = model.device.type == "cpu" and (model.parameter_count() or 0) >= LARGE
    return max(1, (batch_tokens or (BATCH_TOKENS_OF_LARGE if large else BATCH_TOKENS)) // length)


def _against(
    model: LanguageModel, hidden_ND: Tensor, targets_N: Tensor, likeliest: bool, candidates_NC: Tensor | None
) -> Tensor:
    """The numbers of each target, in the order of `Scores`, float32 [K, N], from LOGIT_ELEMENTS logits at a time.

    A target whose loss is NaN was given no probability: its loss is infinite, and it is not the likeliest.
    """
    rows = max(1, LOGIT_ELEMENTS // model.vocab_size)
    parts = []
    for first in range(0, len(targets_N), rows):
        targets_R = targets_N[first : first + rows]
        logits_RV = model.head(hidden_ND[first : first + rows]).float()
        loss_R = F.cross_entropy(logits_RV, targets_R, reduction="none")
        numbers = [loss_R.where(~loss_R.isnan(), math.inf)]
        if likeliest:
            numbers.append(((logits_RV.argmax(dim=-1) == targets_R) & ~loss_R.isnan()).float())
        if candidates_NC is not None:
            numbers += _over(logits_RV, targets_R, candidates_NC[first : first + rows])
        parts.append(torch.stack(numbers))
    return torch.cat(parts, dim=1)


def _over(logits_RV: Tensor, targets_R: Tensor, candidates_RC: Tensor) -> tuple[Tensor, Tensor]:
    """Margins, and whether targets are chosen, from logits: their differences are those of losses.

    Both are NaN without other candidates. A margin of logits that are NaN is -inf.
    """
    other_RC = (candidates_RC >= 0) & (candidates_RC != targets_R[:, None])
    above_RC = logits_RV.gather(1, targets_R[:, None]) - logits_RV.gather(1, candidates_RC.clamp(min=0))
    count_R = other_RC.sum(dim=1)
    sum_R = above_RC.where(other_RC, 0).sum(dim=1)
    margin_R = sum_R.where(~sum_R.isnan(), -math.inf) / count_R  # 0 / 0 is NaN
    chosen_R = (above_RC.where(other_RC, math.inf) > 0).all(dim=1).float().where(count_R > 0, math.nan)
    return margin_R, chosen_R


def validation_windows(split: Split, seq_len: int, max_targets: int) -> tuple[Windows, ...]:
    """Disjoint windows of the training length over a split: `windows` at 1x.

    Raises UserError if no document holds one.
    """
    if split.lengths.max(initial=0) <= seq_len:
        raise UserError(
            f"no validation document holds a window of {seq_len} tokens and its next: use a smaller `seq_len`, or "
            f"tokenise with `min_heldout_tokens={seq_len + 1}` or more"
        )
    return protocols["windows"]().layout(split.lengths, seq_len, [seq_len], max(max_targets, seq_len)).rows[seq_len]


def validation_loss(
    model: LanguageModel,
    split: Split,
    windows: tuple[Windows, ...],
    plan: Plan = PLAIN,
    precision: str = "fp32",
    *,
    batch_tokens: int | None = None,
    progress: OnBatch = ignored,
) -> float:
    """The mean loss of a model's targets, nats. `progress` is called after every batch."""
    losses = [
        target_losses(model, split, group, plan, precision=precision, batch_tokens=batch_tokens, progress=progress)
        for group in windows
    ]
    return float(np.mean(np.concatenate([part.ravel() for part in losses]), dtype=np.float64))
