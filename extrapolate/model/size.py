"""Computes the size of models, to refuse those that do not fit into memory before allocating any."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch

from extrapolate.encodings.base import Dims, Encoding
from extrapolate.errors import UserError
from extrapolate.machine.limits import memory_limit
from extrapolate.model.canon import TOKENS
from extrapolate.model.config import ModelConfig
from extrapolate.specs import user_files

WEIGHT = 4  # bytes a parameter
TRAINED_WEIGHT = 16  # with its gradient, and AdamW's two moments
MOST_COUNTED = 64  # layers that are counted one by one, since they may be of several kinds
LAYER_OBJECTS = 50_000  # bytes of a layer's Python objects


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of a decoder's weights by their names in `Model.state_dict`, without the encoding's own.

    Shared tensors (tied embeddings) appear once.
    """
    table = (config.vocab_size, config.width)
    shapes: dict[str, tuple[int, ...]] = {"embedding.weight": table, "norm.weight": (config.width,)}
    if not config.tied_embeddings:
        shapes["head.weight"] = table
    for layer in range(config.layers):
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in _block_shapes(config).items()}
    return shapes


def _block_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attention_norm.weight": (config.width,),
        "attention.qkv.weight": (queries + 2 * keys, config.width),
        "attention.out.weight": (config.width, queries),
        "feed_forward_norm.weight": (config.width,),
        "feed_forward.gate_up.weight": (2 * config.ff_width, config.width),
        "feed_forward.down.weight": (config.width, config.ff_width),
    }
    if config.qk_norm:
        shapes |= {"attention.q_norm.weight": (config.head_dim,), "attention.k_norm.weight": (config.head_dim,)}
    if config.qkv_bias:
        shapes["attention.qkv.bias"] = (queries + 2 * keys,)
    if config.post_norms:
        shapes |= {f"{part}_post_norm.weight": (config.width,) for part in ("attention", "feed_forward")}
    if config.ssmax:
        shapes["attention.ssmax.s_H"] = (config.heads,)
    if config.canon:
        projected = (2 if config.differential else 1) * queries + 2 * keys
        shapes |= {
            "attention_canon.weight_C4": (config.width, TOKENS),
            "attention.canon.weight_C4": (projected, TOKENS),
            "feed_forward_canon.weight_C4": (config.width, TOKENS),
            "feed_forward.canon.weight_C4": (2 * config.ff_width, TOKENS),
        }
    if config.differential:
        shapes |= {
            "attention.second.weight": (queries, config.width),
            "attention.share.weight": (config.heads, config.width),
        }
        if config.qkv_bias:
            shapes["attention.second.bias"] = (queries,)
    if config.output_gate:
        shapes["attention.gate.weight"] = (queries, config.width)
    if config.sinks:
        shapes["attention.sink_H"] = (config.heads,)
    return shapes


def parameter_count(config: ModelConfig) -> int:
    """Trained parameters of a decoder, without the encoding's own; tied embeddings count once."""
    return sum(_parameters_by_part(config).values())


def _parameters_by_part(config: ModelConfig) -> dict[str, int]:
    counts = {name: config.layers * math.prod(shape) for name, shape in _block_shapes(config).items()}
    tables = 1 if config.tied_embeddings else 2
    return {
        "the embedding": tables * config.vocab_size * config.width + config.width,
        "attention": sum(count for name, count in counts.items() if name.startswith("attention")),
        "the feed-forward layers": sum(count for name, count in counts.items() if name.startswith("feed_forward")),
    }


_SETTINGS = {
    "the embedding": "width in the configuration, or take a smaller vocabulary",
    "attention": "`layers`, or width, heads or head_dim in the configuration",
    "the feed-forward layers": "`layers`, or width or ff_width in the configuration",
    "the objects of its layers": "`layers`",
    "the logits of a forward pass": "micro_batch_tokens in the configuration, or take a smaller vocabulary",
    "the tokens of a batch": "`batch_tokens`",
}


def check_model(config: ModelConfig) -> None:
    """Raises UserError if a model of these sizes does not fit into memory."""
    _check("the model", _held(config, WEIGHT), "cpu")


def check_training(config: ModelConfig, *, step_tokens: int, pass_tokens: int, device: str) -> None:
    """Raises UserError if training does not fit into the memory of this machine, or of its device.

    step_tokens, pass_tokens: tokens of an optimiser's step and of a forward pass. This is a lower bound: activations,
    the encoding's own parameters and the program itself are not counted.
    """
    check_model(config)  # built on the CPU in any case
    needs = _held(config, TRAINED_WEIGHT) | {
        "the logits of a forward pass": 4 * pass_tokens * config.vocab_size,
        "the tokens of a batch": 2 * 8 * step_tokens,  # as single windows, and then in one array
    }
    _check("training", needs, device)


def _held(config: ModelConfig, weight: int) -> dict[str, int]:
    """Bytes by part."""
    held = {part: weight * count for part, count in _parameters_by_part(config).items()}
    return held | {"the objects of its layers": LAYER_OBJECTS * config.layers}


def check_encoding(cls: type[Encoding], arguments: Mapping[str, Any], dims: Dims) -> None:
    """Raises UserError if a model's encodings, one per layer, do not fit into memory.

    arguments: of the class, converted. Builds the layers on torch's meta device, where tensors take no memory; ignores
    classes that cannot be built there, or that refuse their arguments.
    """
    # The sizes alone first: an encoding may compute with them before it can be counted.
    attention = 2 * WEIGHT * dims.layers * dims.width * dims.heads * dims.head_dim
    needs = {"attention": attention, "the objects of its layers": LAYER_OBJECTS * dims.layers}
    _check("the model", needs, "cpu")

    try:
        # Ignores what a user's class raises here: it is raised again, and reported, when the model is built.
        needed = user_files.of_user(
            lambda: _bytes_of_layers(cls, arguments, dims),
            lambda error: error if isinstance(error, Exception) else UserError(),
        )
    except RuntimeError as error:
        if "overflow" not in str(error):
            return
        needed = math.inf
    except Exception:
        return
    limit = memory_limit("cpu")
    if needed > limit:
        given = ", ".join(f"{name}={value}" for name, value in arguments.items())
        size = "more than any machine has" if needed == math.inf else f"at least {_gb(needed)}"
        raise UserError(
            f"the encoding's own tensors need {size}, and this machine has {_gb(limit)}: lower its arguments"
            f"{f' ({given})' if given else ''} or the model's sizes"
        )


def _bytes_of_layers(cls: type[Encoding], arguments: Mapping[str, Any], dims: Dims) -> float:
    """The bytes of all layers' tensors; if there are very many layers, extrapolated from the second."""
    counted = dims.layers if dims.layers <= MOST_COUNTED else 2
    with torch.device("meta"):
        layers = [cls(dataclasses.replace(dims, layer=layer), **arguments) for layer in range(counted)]
        for layer in layers[1:]:
            layer.share(layers[0])
    first, last = _bytes_of(layers[0]), _bytes_of(layers[-1])
    held = {key: size for layer in layers for key, size in _bytes_of(layer).items()}
    each = sum(size for key, size in last.items() if key not in first)
    return sum(held.values()) + (dims.layers - counted) * each


def _bytes_of(encoding: Encoding) -> dict[int, int]:
    """The bytes of each of its tensors, by the tensor's identity."""
    tensors = (*encoding.parameters(), *encoding.buffers())
    return {id(tensor): tensor.numel() * tensor.element_size() for tensor in tensors}


def _check(what: str, needs: Mapping[str, int], device: str) -> None:
    needed, limit = sum(needs.values()), memory_limit(device)
    if needed > limit:
        largest = max(needs, key=lambda name: needs[name])
        whose = "this machine's GPU" if device == "cuda" else "this machine"
        raise UserError(
            f"{what} needs at least {_gb(needed)} of memory, {_gb(needs[largest])} of it for {largest}, and {whose} "
            f"has {_gb(limit)}: lower {_SETTINGS[largest]}"
        )


def _gb(size: float) -> str:
    """Bytes in words: `3,100 GB`."""
    return f"{size / 1e9:,.{0 if size >= 1e10 else 1}f} GB"
