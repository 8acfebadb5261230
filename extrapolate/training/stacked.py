"""Several models of one shape, computed as one: each of their tensors is a part of a tensor for all of them.

Shapes: M models, B batch, T tokens.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, vmap

from extrapolate.errors import UserError
from extrapolate.model.decoder import Model
from extrapolate.training.learner import Learner

Tensors = dict[str, Tensor]


def losses_of(model: Model) -> Callable[[Tensors, Tensors, Tensor, Tensor | None], Tensor]:
    """The losses [M] of models that have this one's shape, given their parameters, their buffers and [M, B, T + 1].

    A loss is that of `Model.loss`, with weights [M, B, T] or without.
    """

    def loss(parameters: Tensors, buffers: Tensors, tokens_BT: Tensor, weight_BT: Tensor | None) -> Tensor:
        logits_BTV = functional_call(model, (parameters, buffers), tokens_BT[:, :-1])
        targets_N = tokens_BT[:, 1:].flatten()
        loss_N = F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_N, reduction="none")
        return loss_N.mean() if weight_BT is None else (loss_N * weight_BT.flatten()).sum() / len(weight_BT)

    return lambda parameters, buffers, tokens, weight: vmap(loss, (0, 0, 0, None if weight is None else 0))(
        parameters, buffers, tokens, weight
    )


def check(model: Model) -> None:
    """Raises UserError if several such models cannot be computed as one, with the reason."""
    if model.config.dropout:
        raise UserError(
            "several models at once train without dropout, for each would have to draw numbers of its own: set "
            "dropout = 0 in the [model] section of `config`, or train them one after another"
        )
    parameters, buffers = (
        {name: torch.stack([tensor.detach()] * 2) for name, tensor in named}
        for named in (model.named_parameters(), model.named_buffers())
    )
    tokens = torch.zeros(2, 1, model.seq_len + 1, dtype=torch.int64)
    try:
        with warnings.catch_warnings():
            _ignore_slow_operations()
            losses_of(model)(parameters, buffers, tokens, None)
    except RuntimeError as error:
        reason = str(error).partition(". ")[0].replace("`", "'").rstrip(".")
        raise UserError(
            f"several models at once cannot have {model.label()}, for torch.vmap refuses what it does ({reason}): "
            "train them one after another"
        ) from error


def _ignore_slow_operations() -> None:
    """Operations that torch computes for one model after another give the same numbers."""
    warnings.filterwarnings("ignore", "There is a performance drop")


class Stacked:
    """The models of several learners, whose gradients are computed as one.

    Each learner keeps its model and its optimiser: from here on the model's parameters are parts of tensors that hold
    those of all models. The gradients are those that the learner would compute alone, but for rounding.
    """

    def __init__(self, learners: Sequence[Learner]) -> None:
        """The learners' configurations differ in seeds and learning rates alone; their models have passed `check`."""
        self.learners, self.training = learners, learners[0].training
        models = [learner.model for learner in learners]
        self.own = [dict(model.named_parameters()) for model in models]
        self.parameters = {name: _stack(own[name] for own in self.own).requires_grad_() for name in self.own[0]}
        for number, own in enumerate(self.own):
            for name, parameter in own.items():
                parameter.data = self.parameters[name].data[number]
        buffers = [dict(model.named_buffers()) for model in models]
        self.buffers = {name: _stack(own[name] for own in buffers) for name in buffers[0]}
        self.losses = losses_of(models[0])
        if self.training.compile:
            self.losses = torch.compile(self.losses)

    def gradients(self, batches: Sequence[tuple[Tensor, Tensor | None]]) -> list[float]:
        """Gives each model the gradients of its batch's mean loss, and returns those losses.

        Batches are as `Learner.gradients` takes them. A forward pass has as many tokens, of all models together, as
        one of a single model may have. The device is waited for once, at the end.
        """
        tokens_MBT = torch.stack([batch for batch, _ in batches])
        weights = [weight for _, weight in batches if weight is not None]
        weight_MBT = torch.stack(weights) if weights else None
        windows = tokens_MBT.shape[1]
        size = self.training.windows_in_pass(len(batches))
        totals = torch.zeros(len(batches), dtype=torch.float64, device=self.training.device)
        for first in range(0, windows, size):
            rows = slice(first, min(first + size, windows))
            weight = None if weight_MBT is None else weight_MBT[:, rows]
            totals += self._add_gradients(tokens_MBT[:, rows], weight, (rows.stop - first) / windows)
        for name, stack in self.parameters.items():
            for number, own in enumerate(self.own):
                own[name].grad = None if stack.grad is None else stack.grad[number]
            stack.grad = None
        return totals.tolist()

    def _add_gradients(self, tokens_MBT: Tensor, weight_MBT: Tensor | None, share: float) -> Tensor:
        """A forward and a backward pass over a share of the batches; returns that share of the losses, [M]."""
        on_device = self.learners[0].on_device
        weight_MBT = None if weight_MBT is None else on_device(weight_MBT)
        with warnings.catch_warnings():
            _ignore_slow_operations()
            with torch.autocast(self.training.device, torch.bfloat16, enabled=self.training.precision == "bf16"):
                loss_M = self.losses(self.parameters, self.buffers, on_device(tokens_MBT), weight_MBT) * share
            loss_M.sum().backward()
        for learner in self.learners:
            learner.tell(tokens_MBT[0, :, 1:].numel())
        return loss_M.detach()


def _stack(tensors: Iterable[Tensor]) -> Tensor:
    return torch.stack([tensor.detach() for tensor in tensors])
