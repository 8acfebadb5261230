"""The negative log-likelihood of every target of some windows."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.data.store import Split
from extrapolate.evaluation.protocols import Windows
from extrapolate.extensions.base import PLAIN, Plan
from extrapolate.model import Model

BATCH_TOKENS = 8192  # inputs in a forward pass, or one window
LOGIT_ELEMENTS = 2**24  # logits held at a time: 64 MiB in float32


@torch.inference_mode()
def target_losses(
    model: Model,
    split: Split,
    windows: Windows,
    plan: Plan = PLAIN,
    *,
    precision: str = "fp32",
    progress: Callable[[int], None] = lambda tokens: None,
) -> np.ndarray:
    """The loss of each target, nats, float32 [W, scored]. `progress` is told the inputs of every batch.

    Logits are computed for targets only; memory grows with the window's length, not with its square.
    """
    device = model.embedding.weight.device
    size = max(1, BATCH_TOKENS // windows.length)
    losses = np.empty((len(windows.start_W), windows.scored), dtype=np.float32)
    for first in range(0, len(windows.start_W), size):
        rows = slice(first, first + size)
        starts = split.offsets[windows.document_W[rows]] + windows.start_W[rows]
        tokens = np.stack([split.slice(start, start + windows.length + 1) for start in starts]).astype(np.int64)
        tokens_BT = torch.from_numpy(tokens).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            hidden_BSD = model.hidden(tokens_BT[:, :-1], plan)[:, -windows.scored :]
            losses[rows] = _cross_entropy(model, hidden_BSD, tokens_BT[:, -windows.scored :]).cpu().numpy()
        progress(len(starts) * windows.length)
    return losses


def _cross_entropy(model: Model, hidden_BSD: Tensor, targets_BS: Tensor) -> Tensor:
    rows = max(1, LOGIT_ELEMENTS // model.config.vocab_size)
    losses = [
        F.cross_entropy(model.head(hidden_ND).float(), targets_N, reduction="none")
        for hidden_ND, targets_N in zip(
            hidden_BSD.flatten(0, 1).split(rows), targets_BS.flatten().split(rows), strict=True
        )
    ]
    return torch.cat(losses).view_as(targets_BS)
