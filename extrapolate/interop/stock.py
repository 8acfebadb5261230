"""Converts a run's model to one of transformers' own classes, if one computes the same.

Shapes: D width, H heads, K head dim.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from extrapolate.encodings.none import NoPE
from extrapolate.encodings.plan import PLAIN
from extrapolate.encodings.rnope import RNoPE
from extrapolate.encodings.rope import RoPE
from extrapolate.extensions.base import Extension
from extrapolate.extensions.frequencies import NTK, Llama3, NTKByParts, YaRN
from extrapolate.extensions.longrope import LongRoPE
from extrapolate.extensions.positions import PositionInterpolation
from extrapolate.extensions.windows import Window
from extrapolate.model.config import ModelConfig
from extrapolate.model.llama import Decoder

# The names of a layer's weights there and here, except those that are one matrix here.
LAYER = {
    "input_layernorm.weight": "attention_norm.weight",
    "self_attn.o_proj.weight": "attention.out.weight",
    "post_attention_layernorm.weight": "feed_forward_norm.weight",
    "mlp.down_proj.weight": "feed_forward.down.weight",
}

# The sizes of a model by their names in `LlamaConfig`.
SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "width",
    "intermediate_size": "ff_width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "rms_norm_eps": "norm_eps",
    "tie_word_embeddings": "tied_embeddings",
}
# The other settings that some class of transformers supports.
STOCK = {"dropout", "qk_norm", "qkv_bias", "activation"}
ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh"}


@dataclass(frozen=True)
class Rope:
    """A rotary embedding in transformers' terms, and the longest text that it is meant for, in tokens.

    base: theta. scaling: the rope_type and its parameters; empty for the default type.
    """

    base: float
    scaling: dict[str, Any]
    longest: int


def named_sizes(sizes: ModelConfig) -> dict[str, Any]:
    """The sizes of a model by their names in `LlamaConfig`."""
    return {there: getattr(sizes, here) for there, here in SIZES.items()}


def other_settings(sizes: ModelConfig) -> dict[str, Any]:
    """All settings but the sizes."""
    return {name: value for name, value in sizes.model_dump().items() if name not in SIZES.values()}


def stock_config(model: Decoder, parts: Sequence[Extension], trained_length: int) -> dict[str, Any] | None:
    """The fields of config.json for a class of transformers that computes the same; None if there is none.

    parts: the extensions that belong to the model. trained_length: the length of its training windows, in tokens.
    """
    sizes = model.config
    windows = [part for part in parts if type(part) is Window]
    others = [part for part in parts if type(part) is not Window]
    other = others[0] if others else None
    rotates = [layer.has_rotation for layer in model.encodings]
    if (
        any(value for name, value in other_settings(sizes).items() if name not in STOCK)
        or (sizes.qk_norm and sizes.qkv_bias)
        or type(model.encoding) not in (RoPE, NoPE, RNoPE)
        or len(others) > 1
        or (other is not None and other.for_layers != type(other).for_layers)
        or (not all(rotates) and isinstance(other, YaRN | LongRoPE))  # they sharpen all scores here
    ):
        return None
    plan = windows[0].applied(model.encoding, model.seq_len, 2**53) if windows else PLAIN
    extended = [layer.extended(plan.of_layer(layer)) for layer in model.encodings]
    sizes_of_windows = {layer.window for layer in extended} - {None}
    rope = _rope(model, other, trained_length)
    if rope is None or len(sizes_of_windows) > 1:
        return None
    fields: dict[str, Any] = {
        **named_sizes(sizes),
        "hidden_act": ACTIVATIONS[sizes.activation],
        "attention_bias": False,
        "max_position_embeddings": rope.longest,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope.base, **rope.scaling},
        # For versions of transformers before 5.
        "rope_theta": rope.base,
        "rope_scaling": rope.scaling or None,
    }
    if rope.scaling.get("rope_type") == "longrope":  # the length from which its long list applies
        fields["original_max_position_embeddings"] = model.seq_len
    plain = all(rotates) and not sizes_of_windows
    if sizes.qk_norm:
        return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **fields} if plain else None
    if sizes.qkv_bias:
        return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **fields} if plain else None
    if plain and sizes.width % sizes.heads == 0:  # which Llama requires, although it has a head_dim
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False, **fields}
    return {
        "architectures": ["SmolLM3ForCausalLM"],
        "model_type": "smollm3",
        "mlp_bias": False,
        **fields,
        "no_rope_layers": [int(rotated) for rotated in rotates],
        "use_sliding_window": bool(sizes_of_windows),
        "sliding_window": next(iter(sizes_of_windows), None),
        "layer_types": ["sliding_attention" if layer.window else "full_attention" for layer in extended],
    }


def _rope(model: Decoder, part: Extension | None, trained_length: int) -> Rope | None:
    """The rotary embedding with an extension; None if no rope_type computes the same.

    "dynamic" never does: its frequencies depend on the longest text that was read before.
    """
    encoding, length = model.encoding, model.seq_len
    theta = encoding.theta if isinstance(encoding, RoPE) else 10_000.0
    if part is None:
        return Rope(theta, {}, trained_length)
    factor = getattr(part, "factor", None)
    if not isinstance(encoding, RoPE) or factor is None or factor < 1 or model.config.head_dim < 4:
        return None
    reach = max(trained_length, round(length * factor))
    original = {"factor": factor, "original_max_position_embeddings": length}
    match part:
        case PositionInterpolation():
            return Rope(theta, {"rope_type": "linear", "factor": factor}, trained_length)
        case NTK():
            return Rope(theta * factor ** (encoding.dims.head_dim / (encoding.dims.head_dim - 2)), {}, reach)
        case NTKByParts(ramp="pairs"):
            ends = {"beta_fast": part.fast, "beta_slow": part.slow}
            sharper = {} if type(part) is YaRN else {"attention_factor": 1.0}
            return Rope(theta, {"rope_type": "yarn", **original, **ends, **sharper}, reach)
        case Llama3():
            ends = {"low_freq_factor": part.slow, "high_freq_factor": part.fast}
            return Rope(theta, {"rope_type": "llama3", **original, **ends}, reach)
        case LongRoPE():
            lists = {
                name: [1 / scale for scale in part.plan(encoding, length, at).frequency_scale]
                or [1.0] * (model.config.head_dim // 2)
                for name, at in (("short_factor", length), ("long_factor", length + 1))
            }
            sharper = {"attention_factor": part.logit_scale(length, length) ** 0.5}
            return Rope(theta, {"rope_type": "longrope", **original, **lists, **sharper}, reach)
    return None


def stock_weights(model: Decoder) -> dict[str, Tensor]:
    """The weights by the names of transformers' classes, float32."""
    ours, sizes, encoding = model.state_dict(), model.config, model.encoding
    channel_K = torch.arange(sizes.head_dim)
    if isinstance(encoding, RoPE) and encoding.pairing == "interleaved":  # there, channels m and m + K/2 are a pair
        channel_K = torch.cat([channel_K[::2], channel_K[1::2]])
    found = {"model.embed_tokens.weight": ours["embedding.weight"], "model.norm.weight": ours["norm.weight"]}
    if not sizes.tied_embeddings:
        found["lm_head.weight"] = ours["head.weight"]
    queries, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    for i in range(sizes.layers):
        there, here = f"model.layers.{i}", f"blocks.{i}"
        found |= {f"{there}.{name}": ours[f"{here}.{own}"] for name, own in LAYER.items()}
        for kind in ("weight", "bias") if sizes.qkv_bias else ("weight",):
            q, k, v = ours[f"{here}.attention.qkv.{kind}"].split([queries, keys, keys])
            for name, part in (("q", _reordered(q, channel_K)), ("k", _reordered(k, channel_K)), ("v", v)):
                found[f"{there}.self_attn.{name}_proj.{kind}"] = part
        for name in ("q_norm", "k_norm") if sizes.qk_norm else ():
            found[f"{there}.self_attn.{name}.weight"] = ours[f"{here}.attention.{name}.weight"][channel_K]
        gate, up = ours[f"{here}.feed_forward.gate_up.weight"].chunk(2)
        found |= {f"{there}.mlp.gate_proj.weight": gate, f"{there}.mlp.up_proj.weight": up}
    return {name: weight.contiguous().clone() for name, weight in found.items()}


def _reordered(weight: Tensor, channel_K: Tensor) -> Tensor:
    """Reorders the channels of every head in a projection, [H K, D], or its biases, [H K]."""
    return weight.unflatten(0, (-1, len(channel_K)))[:, channel_K].flatten(0, 1)
