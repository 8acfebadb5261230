"""The optimiser and its learning rate.

Shapes: R rows, C columns.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from extrapolate.model.llama import Block
from extrapolate.model.model import Model
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.training.half import Branch

# AdamW's learning rates in multiples of `lr`. Embeddings start 25 times as large as Llama's, and take larger steps.
# With Muon, `lr` is relative to fan-in; the head's rate is divided by the width, as in mu-transfer (arXiv 2203.03466).
ADAMW_EMBEDDING = 10.0
MUON_EMBEDDING, MUON_HEAD, MUON_VECTOR = 5.0, 64.0, 0.5
MOMENTUM = 0.95
# A polynomial a x + b x^3 + c x^5 for each step, found as in Polar Express (arXiv 2505.16932): of all such polynomials,
# these bring singular values in [0.01, 1] closest to 1. Each takes x / 1.02, so that values that bf16 rounds above 1 do
# no harm. Muon's authors take five steps of one polynomial; these three steps are as good.
COEFFICIENTS = tuple(
    (a / 1.02, b / 1.02**3, c / 1.02**5)
    for a, b, c in ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))
)


def learning_rate(training: TrainingConfig, step: int, branch: Branch | None = None) -> float:
    """The rate at step 0, 1, ...: linear warm-up to `lr`, then linear decay.

    In a branch it falls from where the branch begins to its end instead. The decay would reach `min_lr_ratio` times
    `lr` one step after the last, so that the last step still counts.
    """
    if branch is not None:
        lowest, highest = training.min_lr_ratio * training.lr, learning_rate(training, branch.begin)
        return lowest + (highest - lowest) * (branch.end - step) / (branch.end - branch.begin)
    warmup = round(training.warmup_ratio * training.steps)
    if step < warmup:
        return training.lr * (step + 1) / warmup
    left = (training.steps - step) / (training.steps - warmup)
    return training.lr * (training.min_lr_ratio + (1 - training.min_lr_ratio) * left)


class Muon(torch.optim.AdamW):
    """Muon (Jordan et al. 2024, arXiv 2502.16982) for parameter groups that have `parts`, AdamW for all others.

    A matrix moves by lr (long / short)^0.5 times the orthogonal matrix nearest to its momentum, where long and short
    are its sides. Its entries then move by lr short^-0.5 (RMS), so that one learning rate suits every width.

    Group keys: `parts`, the row counts of the matrices that a tensor holds, such as queries, keys and values, which are
    orthogonalised separately (torch.optim.Muon would treat them as one); `bf16`, whether to compute the products in
    bfloat16.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if parts := group.get("parts"):
                for parameter in group["params"]:
                    self._move(parameter, group, parts)
        super().step(closure)  # skips the parameters moved above, which have no gradient any more

    def _move(self, parameter: Tensor, group: dict[str, Any], parts: tuple[int, ...]) -> None:
        if parameter.grad is None:
            return
        state = self.state[parameter]
        if not state:
            state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(parameter)
        state["step"] += 1  # AdamW expects it in every state that it loads
        momentum = state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        wanted = parameter.grad.lerp(momentum, MOMENTUM)
        products = torch.bfloat16 if group["bf16"] else torch.float32
        moves = [math.sqrt(max(x.shape) / min(x.shape)) * orthogonal(x, products) for x in wanted.split(parts)]
        move = torch.cat(moves).to(wanted.dtype)
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(move, alpha=group["lr"])
        parameter.grad = None


def orthogonal(matrix_RC: Tensor, dtype: torch.dtype) -> Tensor:
    """Approximates the nearest matrix whose singular values are all 1.

    The result's lie between 0.69 and 1.27 if none is below 0.01 of the Frobenius norm; smaller ones grow 72-fold.
    """
    x = matrix_RC.to(dtype)
    x = x.mT if x.shape[0] > x.shape[1] else x
    x = x / (x.norm() + 1e-7)
    for a, b, c in COEFFICIENTS:
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrix_RC.shape[0] > matrix_RC.shape[1] else x


def optimizer_of(model: Model, training: TrainingConfig) -> torch.optim.AdamW:
    """The optimiser: with `muon`, Muon for the blocks' matrices and AdamW for the rest; with `adamw`, AdamW for all.

    A group's learning rate is its `rate` times `lr`. Weight decay only applies to the blocks' matrices: not to norms,
    embeddings or an encoding's parameters.
    """
    muon = training.optimizer == "muon"
    matrices: dict[tuple[int, ...], list[Tensor]] = {}
    for block in model.blocks:
        for parts, matrix in _matrices(cast(Block, block)):
            matrices.setdefault(parts, []).append(matrix)
    tables = [model.embedding.weight, *model.encoding.embeddings()]
    head = [] if model.config.tied_embeddings else [model.head.weight]
    found = {id(p) for group in (*matrices.values(), tables, head) for p in group}
    vectors = [p for p in model.parameters() if id(p) not in found]
    groups: list[dict[str, Any]] = []
    for parts, equal in matrices.items():
        own = {"parts": parts, "bf16": training.precision == "bf16"} if muon else {}
        groups.append({"params": equal, "rate": 1.0, "weight_decay": training.weight_decay, **own})
    rates = (MUON_EMBEDDING, MUON_HEAD / model.config.width, MUON_VECTOR) if muon else (ADAMW_EMBEDDING, 1.0, 1.0)
    for rate, group in zip(rates, (tables, head, vectors), strict=True):
        groups.append({"params": group, "rate": rate, "weight_decay": 0.0})
    return (Muon if muon else torch.optim.AdamW)(
        [group for group in groups if group["params"]],
        lr=training.lr,
        betas=(training.beta1, training.beta2),
        fused=True,
    )


def _matrices(block: Block) -> list[tuple[tuple[int, ...], Tensor]]:
    """A block's matrices, each with the row counts of its parts."""
    queries, keys = block.attention.sizes
    up, feed_forward = block.feed_forward.down.in_features, block.feed_forward
    return [
        ((queries, keys, keys), block.attention.qkv.weight),
        ((up, up), feed_forward.gate_up.weight),
        *(
            ((matrix.out_features,), matrix.weight)
            for matrix in (block.attention.out, *block.attention.extra_matrices(), feed_forward.down)
        ),
    ]
