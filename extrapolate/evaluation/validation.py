"""The loss on the validation split, which training logs and constants are fitted to."""

from collections.abc import Callable

import numpy as np

from extrapolate.data.store import Split
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.evaluation.losses import BATCH_TOKENS, target_losses
from extrapolate.evaluation.protocols.base import Windows, protocols
from extrapolate.model.language_model import LanguageModel


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
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] = lambda tokens: None,
) -> float:
    """The mean loss of a model's targets, nats. `progress` is called with the inputs of every batch."""
    losses = [
        target_losses(model, split, group, plan, precision=precision, batch_tokens=batch_tokens, progress=progress)
        for group in windows
    ]
    return float(np.mean(np.concatenate([part.ravel() for part in losses]), dtype=np.float64))
