"""What a training reads."""

import torch
from torch import Tensor

from extrapolate.data.mixture import MixedWindows, Mixture
from extrapolate.data.probes.base import Vocabulary
from extrapolate.data.store import Store
from extrapolate.data.windows import TrainingWindows
from extrapolate.evaluation.validation import validation_windows
from extrapolate.runs.training_config import TrainingConfig

VALIDATION_TARGETS = 8_192


class TrainingData:
    """What a run reads: its training windows, and its validation windows."""

    def __init__(self, training: TrainingConfig, store: Store) -> None:
        """Raises UserError if the store does not hold a window of either, or windows do not hold the probes."""
        self.windows = TrainingWindows(store.split("train"), training.seq_len, training.seed)
        self.mixed: MixedWindows | None = None
        if training.probes is not None:
            mixture = Mixture.parse(training.probes)
            self.mixed = MixedWindows(self.windows, mixture, self.windows.split, Vocabulary.of(store))
        self.validation = store.split("validation")
        self.validation_windows = validation_windows(self.validation, training.seq_len, VALIDATION_TARGETS)

    def batch(self, first: int, size: int) -> tuple[Tensor, Tensor | None]:
        """Windows number first .. first+size-1 since the start of training, and their targets' weights, if they differ.

        Tokens, int64 [size, L + 1]; weights, float32 [size, L], which add up to 1 in every window.
        """
        if self.mixed is None:
            return torch.from_numpy(self.windows.batch(first, size)), None
        tokens, weights = self.mixed.batch(first, size)
        return torch.from_numpy(tokens), torch.from_numpy(weights)
