"""The optimiser and its learning rate."""

import math

import torch

from extrapolate.encodings.base import Encoding
from extrapolate.model.decoder import Model
from extrapolate.training.config import TrainingConfig


def learning_rate(training: TrainingConfig, step: int) -> float:
    """Of step 0, 1, ...: linear warm-up, then a cosine down to min_lr_ratio of the peak at the last step."""
    warmup = round(training.warmup_ratio * training.steps)
    if step < warmup:
        return training.lr * (step + 1) / warmup
    progress = (step - warmup) / max(1, training.steps - 1 - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return training.lr * (training.min_lr_ratio + (1 - training.min_lr_ratio) * cosine)


def optimizer_of(model: Model, training: TrainingConfig) -> torch.optim.AdamW:
    """AdamW; weight decay on the blocks' matrices alone: not on norms, embeddings or an encoding's parameters."""
    exempt = {id(p) for module in model.modules() if isinstance(module, Encoding) for p in module.parameters()}
    exempt.update((id(model.embedding.weight), id(model.head.weight)))
    parameters = list(model.parameters())
    decayed = [p for p in parameters if p.ndim >= 2 and id(p) not in exempt]
    spared = [p for p in parameters if p.ndim < 2 or id(p) in exempt]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": training.weight_decay}, {"params": spared, "weight_decay": 0.0}],
        lr=training.lr,
        betas=(training.beta1, training.beta2),
        fused=True,
    )
