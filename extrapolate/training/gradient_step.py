"""The training data, and the gradients of a batch in one process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from extrapolate.data.mixture import MixedWindows, Mixture, TrainingWindows
from extrapolate.data.probes.base import Vocabulary
from extrapolate.data.store import Store
from extrapolate.encodings.plan import Plan
from extrapolate.evaluation.losses import validation_windows
from extrapolate.machine.devices import to_device
from extrapolate.model.model import Model
from extrapolate.runs.training_config import TrainingConfig

VALIDATION_TARGETS = 8_192


class TrainingData:
    """A run's training and validation windows."""

    def __init__(self, training: TrainingConfig, store: Store, vocab_size: int | None = None) -> None:
        """vocab_size: of the model (default: the store's).

        Raises UserError if the store has no window of either kind, or the probes do not fit into windows.
        """
        self.windows = TrainingWindows(store.split("train"), training.seq_len, training.seed)
        self.mixed: MixedWindows | None = None
        if training.probes is not None:
            mixture = Mixture.parse(training.probes)
            vocabulary = Vocabulary.of(store, vocab_size)
            self.mixed = MixedWindows(self.windows, mixture, self.windows.split, vocabulary)
        self.validation = store.split("validation")
        self.validation_windows = validation_windows(self.validation, training.seq_len, VALIDATION_TARGETS)

    def batch(self, first: int, size: int) -> tuple[Tensor, Tensor | None]:
        """Windows number first .. first+size-1 since the start of training, int64 [size, L + 1].

        If targets have different weights, also these, float32 [size, L], which add up to 1 in every window.
        """
        if self.mixed is None:
            return torch.from_numpy(self.windows.batch(first, size)), None
        tokens, weights = self.mixed.batch(first, size)
        return torch.from_numpy(tokens), torch.from_numpy(weights)


Part = tuple[Tensor, Tensor | None, float]  # some windows, the weights of their targets, and their share of the batch


class GradientStep:
    """Computes the gradients of batches on one device. `DataParallel` does the same with several processes."""

    def __init__(
        self,
        model: Model,
        plan: Plan,
        training: TrainingConfig,
        tell: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        """plan: of training windows. tell: called with the number of tokens of every forward pass."""
        self.model, self.training, self.tell = model, training, tell
        self.setting = model.resolve(plan)  # made in training mode
        self.loss: Callable[..., Tensor] = torch.compile(model.loss) if training.compile else model.loss

    def begin_step(self, step: int) -> None:
        """Called before step 0, 1, ...; a single process just continues its random numbers."""

    def gradients(self, batch: Tensor, weight: Tensor | None = None) -> float:
        """Adds the gradients of the batch's mean loss, and returns that loss.

        batch and weight: see `TrainingData.batch`. A forward pass has micro_batch_size windows. Synchronises with the
        device only once, at the end.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.training.device)
        parts = list(self.parts(batch, weight))
        for number, (tokens, part_weight, share) in enumerate(parts):
            with self.exchange(last=number == len(parts) - 1):
                with torch.autocast(self.training.device, torch.bfloat16, enabled=self.training.precision == "bf16"):
                    loss = self.loss(tokens[:, :-1], tokens[:, 1:], self.setting, part_weight) * share
                loss.backward()
            total += loss.detach()
            self.tell(tokens[:, 1:].numel())
        return total.item()

    def parts(self, batch: Tensor, weight: Tensor | None) -> Iterator[Part]:
        """The forward passes of a batch."""
        batch, weight = self.on_device(batch), None if weight is None else self.on_device(weight)
        for first in range(0, len(batch), self.training.micro_batch_size):
            rows = slice(first, first + self.training.micro_batch_size)
            yield batch[rows], None if weight is None else weight[rows], len(batch[rows]) / len(batch)

    def on_device(self, values: Tensor) -> Tensor:
        """Copies values to the model's device, without waiting for a GPU."""
        return to_device(values, self.training.device)

    def exchange(self, last: bool) -> AbstractContextManager[None]:
        """The context of a forward and backward pass, in which several processes exchange gradients."""
        return nullcontext()
