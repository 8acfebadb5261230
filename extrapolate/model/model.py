"""The model of a run: a decoder built from an encoding's name, with methods for training and evaluation.

Shapes: B batch, T tokens, N targets, V vocabulary.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding, encodings, layers_of
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.model.attention import ResolvedPlan
from extrapolate.model.config import ModelConfig
from extrapolate.model.hooks import check
from extrapolate.model.llama import Decoder
from extrapolate.model.size import check_encoding, check_model
from extrapolate.specs import user_files


def find(name: str) -> type[Encoding]:
    """The class with a registered name, or of `path/to/file.py:Class`. Raises UserError if there is none."""
    cls, file = user_files.find_class(name, encodings, Encoding)
    if file is not None and not hasattr(cls, "display"):
        raise UserError(f'{name} has no display, which is its name in tables: write display = "{cls.__name__}"')
    return cls


def is_users(cls: type) -> bool:
    """Whether a class is not one of the package's own, which its tests cover."""
    return not cls.__module__.startswith("extrapolate.")


def layer_encodings(name: str, arguments: Mapping[str, Any], dims: Dims) -> list[Encoding]:
    """One instance per layer.

    Raises UserError if the name or an argument is unknown, the encoding refuses a value, a class of a user's file does
    not do what an encoding must, or the layers do not fit into memory.
    """
    cls = find(name)
    converted = specs.convert_arguments(cls, arguments, owner=name)
    check_encoding(cls, converted, dims)
    if ":" in name:
        file = Path(name.rpartition(":")[0])
        check(cls, file, converted, dims)
    try:
        return layers_of(cls, converted, dims)
    except UserError:
        raise
    except (ArithmeticError, ValueError) as error:  # too large, divided by 0, or the logarithm of 0
        said = ", ".join(f"{key}={value}" for key, value in converted.items())
        raise UserError(f"{name}: {said} gives numbers that cannot be computed with: {error}") from error


class Model(Decoder):
    """A decoder made from the name of an encoding."""

    def __init__(
        self, config: ModelConfig, encoding: str, arguments: Mapping[str, Any], seq_len: int, *, drawn: bool = True
    ) -> None:
        """Builds the model with fresh weights.

        `encoding` is a name or file spec, `arguments` its configuration, `seq_len` the training length in tokens.
        Drawing takes a second for 100 million weights; with `drawn=False`, only the encodings have any, and the others
        are on torch's meta device until they are loaded.
        Raises UserError if the encoding refuses its arguments or the sizes, or they do not fit into memory.
        """
        check_model(config)
        dims = Dims(
            config.width, config.heads, config.head_dim, seq_len, layers=config.layers, kv_heads=config.kv_heads
        )
        with torch.random.fork_rng(devices=[]):  # one seed gives every encoding the same weights elsewhere
            encodings = layer_encodings(encoding, arguments, dims)
        _check_attention(config, encodings)
        with torch.device("cpu" if drawn else "meta"):
            super().__init__(config, encodings, seq_len)
        self.dims = dims

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.config.vocab_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.weight.device

    @property
    def ssmax(self) -> bool:
        """Whether it was trained with SSMax."""
        return self.config.ssmax

    def label(self) -> str:
        """The encoding's name in tables, and what is combined with it: `RoPE+SSMax`."""
        return "+".join([self.encoding.label(), *self.config.combined()])

    def parameter_count(self) -> int:
        """Trained parameters; tied embeddings count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def copied(self) -> Self:
        """A copy that shares the parameters outside of encodings. Raises UserError if torch cannot copy an encoding."""
        own = {id(parameter) for encoding in self.encodings for parameter in encoding.parameters()}
        shared = {id(parameter): parameter for parameter in self.parameters() if id(parameter) not in own}
        try:
            return copy.deepcopy(self, shared)
        except RuntimeError as error:
            raise UserError(
                f"the encoding {self.encoding.display} cannot be copied ({error}): keep no tensor that is computed "
                "from tokens or parameters; torch.nn.utils.parametrizations computes one from parameters in every call"
            ) from error

    @torch.no_grad()
    def begin_step(self, done: float) -> None:
        """Tells the encodings which share of the training is done, 0 to 1, before a step."""
        for encoding in self.encodings:
            encoding.begin_step(done)

    @torch.no_grad()
    def constrain(self) -> None:
        """Clamps the encodings' parameters to their ranges, in place."""
        for encoding in self.encodings:
            encoding.constrain()

    def loss(
        self, tokens_BT: Tensor, targets_BT: Tensor, plan: Plan | ResolvedPlan = PLAIN, weight_BT: Tensor | None = None
    ) -> Tensor:
        """Mean negative log-likelihood of the targets, nats, float32.

        weight_BT: weights of targets that add up to 1 in every window (default: equal).
        """
        logits_NV = self(tokens_BT, plan).flatten(0, 1)
        weight_N = None if weight_BT is None else weight_BT.flatten() / len(weight_BT)
        return cross_entropy(logits_NV, targets_BT.flatten(), weight_N)


def _check_attention(config: ModelConfig, encodings: list[Encoding]) -> None:
    """Raises UserError if a setting changes attention, but some layer has none."""
    changes = [name for name in ("sinks", "differential") if getattr(config, name)]
    for encoding in encodings if changes else ():
        if not encoding.attends():
            raise UserError(
                f"{changes[0]}: a change of attention, and {encoding.display} has none in layer {encoding.dims.layer}"
            )


CHUNK_ELEMENTS = 2**18  # elements of the rows computed at a time: 1 MiB in float32, which stays in a core's cache


def cross_entropy(logits_NV: Tensor, targets_N: Tensor, weight_N: Tensor | None = None) -> Tensor:
    """Mean negative log-likelihood of the targets, nats, float32; with weights, their weighted sum.

    The backward pass overwrites the logits with their gradient, so do not read them afterwards. This holds them only
    once and in their own precision; torch's function also holds logarithms and two gradients, in float32.
    """
    loss_N = _CrossEntropy.apply(logits_NV, targets_N)
    return loss_N.mean() if weight_N is None else (loss_N * weight_N).sum()


class _CrossEntropy(torch.autograd.Function):
    """The loss of each target. Compiled code takes a single pass each way, without chunks."""

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
    """Each target's loss, and the logarithm of the softmax's denominator."""
    logits_RV = logits_RV.float()
    norm_R = logits_RV.logsumexp(dim=-1)
    return norm_R - logits_RV.gather(1, targets_R[:, None])[:, 0], norm_R


def _gradient(logits_RV: Tensor, targets_R: Tensor, norm_R: Tensor, grad_R: Tensor) -> Tensor:
    """The probabilities, minus 1 for the target, times the loss's gradient; in the logits' precision."""
    target_R1 = logits_RV.gather(1, targets_R[:, None]).float().sub(norm_R[:, None]).expm1() * grad_R[:, None]
    grad_RV = logits_RV.float().sub(norm_R[:, None]).exp_().mul_(grad_R[:, None]).to(logits_RV.dtype)
    return grad_RV.scatter_(1, targets_R[:, None], target_R1.to(logits_RV.dtype))
