"""Data parallelism: several processes, each with its own windows of every batch."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from extrapolate.encodings.plan import Plan
from extrapolate.machine.distributed import Ranks
from extrapolate.model.attention import ResolvedPlan
from extrapolate.model.model import Model
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.training.gradient_step import GradientStep, Part


class LossOf(nn.Module):
    """A model whose forward pass is its loss, since DistributedDataParallel wraps forward passes."""

    def __init__(self, model: Model, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, setting: ResolvedPlan, weight_BT: Tensor | None) -> Tensor:
        return self.loss(tokens_BT, targets_BT, setting, weight_BT)


class DataParallel(GradientStep):
    """Every process has the whole model, and learns from a part of each batch (DistributedDataParallel).

    The gradients are those of one process, except for rounding. Random numbers in training, such as dropout's, depend
    on the seed, the step and the rank: the same number of processes repeats or resumes a training bit for bit, and
    another number draws other random numbers.
    """

    def __init__(
        self,
        model: Model,
        plan: Plan,
        training: TrainingConfig,
        tell: Callable[[int], None],
        ranks: Ranks,
    ) -> None:
        # Only the first process shows progress; no process has more windows.
        whole, here = training.batch_size, -(-training.batch_size // ranks.world_size)
        super().__init__(model, plan, training, lambda tokens: tell(round(tokens * whole / here)))
        self.ranks = ranks
        # The package's encodings use all their parameters; a user's may not use some in every layer.
        own = not type(self.model.encoding).__module__.startswith("extrapolate.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 has another name for broadcast_buffers
            self.replica = DistributedDataParallel(
                LossOf(self.model, self.loss), broadcast_buffers=False, find_unused_parameters=own
            )
        self.loss = self.replica

    def begin_step(self, step: int) -> None:
        """Seeds the random numbers of step 0, 1, ... and this process."""
        seeds = np.random.SeedSequence([self.training.seed, step, self.ranks.rank])
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))

    def gradients(self, batch: Tensor, weight: Tensor | None = None) -> float:
        """As `GradientStep.gradients`; returns this process's part of the loss."""
        return super().gradients(batch, weight) / self.ranks.world_size

    def parts(self, batch: Tensor, weight: Tensor | None) -> Iterator[Part]:
        """This process's forward passes: all processes have the same number.

        Shares of the batch are multiplied by the number of processes, over which gradients are averaged. A process that
        has no window left computes one with a share of 0.
        """
        least, more = divmod(len(batch), self.ranks.world_size)
        rank, size = self.ranks.rank, self.training.micro_batch_size
        first = rank * least + min(rank, more)
        end = first + least + (rank < more)
        for start in range(first, first + least + (more > 0), size):
            rows = slice(start, min(start + size, end)) if start < end else slice(0, 1)
            share = (rows.stop - rows.start) / len(batch) * self.ranks.world_size if start < end else 0.0
            yield self.on_device(batch[rows]), None if weight is None else self.on_device(weight[rows]), share

    def exchange(self, last: bool) -> AbstractContextManager[None]:
        """Shares gradients once, at the end of the batch."""
        return super().exchange(last) if last else self.replica.no_sync()
