"""Sharded training: several processes, each with a part of the model."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from extrapolate.encodings.base import Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.machine.distributed import Ranks
from extrapolate.model.model import Model
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.training.data_parallel import DataParallel, LossOf
from extrapolate.training.optimizer import optimizer_of

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)  # gathers in the first process only


class Sharded(DataParallel):
    """Each process holds a part of every matrix, its gradient and its moments (FSDP2, `fully_shard`).

    Blocks are gathered while they compute. The encodings' own parameters, which are few and may be shared by layers,
    are whole in every process.
    """

    def __init__(
        self,
        model: Model,
        optimizer: torch.optim.AdamW,
        plan: Plan,
        training: TrainingConfig,
        tell: Callable[[int], None],
        ranks: Ranks,
        fresh: Callable[[], Model],
    ) -> None:
        """fresh: makes an unsharded model like this one."""
        self.fresh = fresh
        super().__init__(model, optimizer, plan, training, tell, ranks)

    def wrap(self) -> None:
        """Shards the model, and makes an optimiser for its parts."""
        encodings = [module for module in self.model.modules() if isinstance(module, Encoding)]
        kept = {id(parameter): parameter for module in encodings for parameter in module.parameters()}
        before = {id(parameter): name for name, parameter in self.model.named_parameters()}
        mesh = init_device_mesh(self.training.device, (self.ranks.world_size,))
        loss = LossOf(self.model, self.model.loss)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh, ignored_params=set(kept.values()))
        self.shards = fully_shard(loss, mesh=mesh, ignored_params=set(kept.values()))
        self.loss = loss
        self.kept = list(kept.values())
        self.optimizer = self._optimizer_of_parts(before)

    def gradients(self, batch: Tensor, weight: Tensor | None = None) -> float:
        """As `DataParallel.gradients`, and averages those of the encodings' own parameters."""
        part = super().gradients(batch, weight)
        grads = [parameter.grad for parameter in self.kept if parameter.grad is not None]
        if grads:
            flat = torch.cat([grad.flatten() for grad in grads])
            dist.all_reduce(flat)
            flat /= self.ranks.world_size
            for grad, mean in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
                grad.copy_(mean.view_as(grad))
        return part

    def exchange(self, last: bool) -> AbstractContextManager[None]:
        self.shards.set_requires_gradient_sync(last)
        return super(DataParallel, self).exchange(last)

    def clip(self) -> Tensor:
        """As `Learner.clip`, with one norm over sharded and whole parameters."""
        parameters = list(self.model.parameters())
        kinds = [[p for p in parameters if isinstance(p, DTensor) is sharded] for sharded in (True, False)]
        norms = []
        for kind in kinds:
            norm = get_total_norm([p.grad for p in kind if p.grad is not None])
            norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        total = torch.linalg.vector_norm(torch.stack(norms))
        for kind in kinds:
            clip_grads_with_norm_(kind, self.training.clip, total)
        return total

    def whole_model(self) -> Model:
        """The unsharded model, gathered in every process."""
        return self._model_of(get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True)))

    def whole(self) -> tuple[Model, torch.optim.AdamW]:
        """The unsharded model and its optimiser, gathered in the first process."""
        weights = get_model_state_dict(self.model, options=_WHOLE)
        moments: dict[str, Any] = get_optimizer_state_dict(self.model, self.optimizer, options=_WHOLE)
        if not self.ranks.first:
            return self.model, self.optimizer
        model = self._model_of(weights)
        optimizer = optimizer_of(model, self.training)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        order = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
        found = {n: moments["state"][name] for n, name in enumerate(order) if name in moments["state"]}
        optimizer.load_state_dict(optimizer.state_dict() | {"state": found})
        return model, optimizer

    def _model_of(self, weights: dict[str, Any]) -> Model:
        model = self.fresh()
        model.load_state_dict(weights)
        return model.to(self.training.device)

    def _optimizer_of_parts(self, before: dict[int, str]) -> torch.optim.AdamW:
        """The optimiser, with its moments, for the parts of the model. before: the whole parameters' names."""
        now = dict(self.model.named_parameters())
        groups: list[dict[str, Any]] = []
        for group in self.optimizer.param_groups:
            names = [before[id(p)] for p in group["params"]]
            for sharded in (True, False):  # no group may have both kinds
                chosen = [now[name] for name in names if isinstance(now[name], DTensor) is sharded]
                groups += [{**group, "params": chosen}] if chosen else []
        optimizer = type(self.optimizer)(groups, fused=True)
        for old, moments in self.optimizer.state.items():
            parameter = now[before[id(old)]]
            optimizer.state[parameter] = dict(moments)
            if isinstance(parameter, DTensor):
                optimizer.state[parameter] |= {
                    name: distribute_tensor(moment, parameter.device_mesh, parameter.placements)
                    for name, moment in moments.items()
                    if moment.shape == parameter.shape  # not the number of steps
                }
        return optimizer
