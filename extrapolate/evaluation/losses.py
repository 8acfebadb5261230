"""The negative log-likelihood of every target of some windows.

Shapes: W windows, B windows of a batch, T inputs, P scored places, D width.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.data.store import Split
from extrapolate.evaluation.protocols.base import Windows
from extrapolate.model.decoder import Model
from extrapolate.model.plan import PLAIN, Plan

BATCH_TOKENS = 8192  # inputs in a forward pass, or one window, unless asked otherwise
LOGIT_ELEMENTS = 2**20  # logits held at a time: 4 MiB in float32, which stay in the cache


def target_losses(
    model: Model,
    split: Split,
    windows: Windows,
    plan: Plan = PLAIN,
    *,
    precision: str = "fp32",
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] = lambda tokens: None,
) -> np.ndarray:
    """The loss of each target, nats, float32 [W, scored]. `progress` is told the inputs of every batch."""
    places_P = np.arange(windows.length - windows.scored, windows.length)
    return losses_at(
        model, split, windows, places_P, plan, precision=precision, batch_tokens=batch_tokens, progress=progress
    )


@torch.inference_mode()
def losses_at(
    model: Model,
    split: Split,
    windows: Windows,
    places_P: np.ndarray,
    plan: Plan = PLAIN,
    *,
    precision: str = "fp32",
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] = lambda tokens: None,
) -> np.ndarray:
    """The loss at some places of every window, nats, float32 [W, P]; a place is the index of the last input seen.

    places_P ascend. What is behind the first of them enters the last block by its keys and values alone, and logits
    are computed for these places only; memory grows with the window's length, not with its square.
    """
    device = model.embedding.weight.device
    first = int(places_P[0])
    wanted_P = torch.from_numpy(places_P).to(device)
    everything = len(places_P) == windows.length - first
    size = max(1, batch_tokens // windows.length)
    losses = np.empty((len(windows.start_W), len(places_P)), dtype=np.float32)
    for row in range(0, len(windows.start_W), size):
        rows = slice(row, row + size)
        starts = split.offsets[windows.document_W[rows]] + windows.start_W[rows]
        tokens = np.stack([split.slice(start, start + windows.length + 1) for start in starts]).astype(np.int64)
        tokens_BT = torch.from_numpy(tokens).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            hidden_BPD = model.hidden(tokens_BT[:, :-1], plan, first)
            if not everything:
                hidden_BPD = hidden_BPD[:, wanted_P - first]
            losses[rows] = _cross_entropy(model, hidden_BPD, tokens_BT[:, wanted_P + 1]).cpu().numpy()
        progress(len(starts) * windows.length)
    return losses


def _cross_entropy(model: Model, hidden_BPD: Tensor, targets_BP: Tensor) -> Tensor:
    rows = max(1, LOGIT_ELEMENTS // model.config.vocab_size)
    losses = [
        F.cross_entropy(model.head(hidden_ND).float(), targets_N, reduction="none")
        for hidden_ND, targets_N in zip(
            hidden_BPD.flatten(0, 1).split(rows), targets_BP.flatten().split(rows), strict=True
        )
    ]
    return torch.cat(losses).view_as(targets_BP)
