"""The loss of a training step, in little memory.

Shapes: N targets, V vocabulary, R rows at a time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Rows are computed so many elements at a time: 1 MiB in float32, which stays in a core's cache.
CHUNK_ELEMENTS = 2**18


def cross_entropy(logits_NV: Tensor, targets_N: Tensor, weight_N: Tensor | None = None) -> Tensor:
    """Mean negative log-likelihood of the targets, nats, float32; with weights, the sum of the weighted ones.

    Its gradient is written over the logits, so that nobody may read them after the backward pass. They exist once,
    in their own precision, where torch's own function holds them, their logarithms and two gradients, in float32.
    """
    loss_N = _CrossEntropy.apply(logits_NV, targets_N)
    return loss_N.mean() if weight_N is None else (loss_N * weight_N).sum()


class _CrossEntropy(torch.autograd.Function):
    """The loss of each target. Compiled code makes one pass of each half, and needs no chunks."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        chunks = zip(*(x.split(_rows(logits_NV)) for x in (logits_NV, targets_N)), strict=True)
        losses, norms = zip(*(_losses(*chunk) for chunk in chunks), strict=True)
        ctx.save_for_backward(logits_NV, targets_N, torch.cat(norms))
        return torch.cat(losses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor, None]:
        logits_NV, targets_N, norm_N = ctx.saved_tensors
        if torch.compiler.is_compiling():
            return _gradient(logits_NV, targets_N, norm_N, grad_N), None
        for chunk in zip(*(x.split(_rows(logits_NV)) for x in (logits_NV, targets_N, norm_N, grad_N)), strict=True):
            chunk[0].copy_(_gradient(*chunk))
        return logits_NV, None


def _rows(logits_NV: Tensor) -> int:
    return len(logits_NV) if torch.compiler.is_compiling() else max(1, CHUNK_ELEMENTS // logits_NV.shape[1])


def _losses(logits_RV: Tensor, targets_R: Tensor) -> tuple[Tensor, Tensor]:
    """Each target's loss, and the logarithm of the sum that makes probabilities of the logits."""
    logits_RV = logits_RV.float()
    norm_R = logits_RV.logsumexp(dim=-1)
    return norm_R - logits_RV.gather(1, targets_R[:, None])[:, 0], norm_R


def _gradient(logits_RV: Tensor, targets_R: Tensor, norm_R: Tensor, grad_R: Tensor) -> Tensor:
    """The probabilities, less 1 for the target, times the loss's gradient; in the logits' precision."""
    target_R1 = logits_RV.gather(1, targets_R[:, None]).float().sub(norm_R[:, None]).expm1() * grad_R[:, None]
    grad_RV = logits_RV.float().sub(norm_R[:, None]).exp_().mul_(grad_R[:, None]).to(logits_RV.dtype)
    return grad_RV.scatter_(1, targets_R[:, None], target_R1.to(logits_RV.dtype))
