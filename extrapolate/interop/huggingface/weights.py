"""Reads the weights of a checkpoint under our names."""

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from extrapolate.errors import UserError
from extrapolate.interop.huggingface.config import architecture_of
from extrapolate.interop.huggingface.rotary import rotary_of
from extrapolate.interop.huggingface.source import Source
from extrapolate.model.config import ModelConfig

# The names of a layer's norms here and there. The second table is for layers with post-norms.
_NORMS = {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}
_POST_NORMS = {
    "attention_post_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_post_norm": "post_feedforward_layernorm",
}
# Parts of names that torch.compile and training in several processes add.
_WRAPPERS = {"_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def weights_of(source: Source, sizes: ModelConfig) -> dict[str, Tensor]:
    """The weights under our names, float32. Raises UserError if one is missing, damaged or not in our decoder."""
    theirs = _read(source)

    def take(*names: str) -> Tensor:
        if missing := [name for name in names if name not in theirs]:
            raise UserError(f"{source.folder}: its weights lack {', '.join(missing)}")
        try:
            return torch.cat([theirs.pop(name).float() for name in names])
        except RuntimeError as error:
            raise UserError(f"{source.folder}: {', '.join(names)} do not fit each other: {error}") from None

    def joined(whole: str, *parts: str) -> Tensor:
        """A matrix that some classes have as a whole, and others in parts."""
        return take(whole) if whole in theirs else take(*parts)

    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    if sizes.tied_embeddings and head in theirs and embedding not in theirs:  # a file may have either
        theirs[embedding] = theirs.pop(head)
    norms = _NORMS | (_POST_NORMS if sizes.post_norms else {})
    ours = {"embedding.weight": take(embedding), "norm.weight": take("model.norm.weight")}
    for i in range(sizes.layers):
        there, here = f"model.layers.{i}", f"blocks.{i}"
        attention, mlp = f"{there}.self_attn", f"{there}.mlp"
        ours |= {f"{here}.{own}.weight": take(f"{there}.{name}.weight") for own, name in norms.items()}
        parts = [f"{attention}.{name}_proj" for name in "qkv"]
        ours[f"{here}.attention.qkv.weight"] = joined(
            f"{attention}.qkv_proj.weight", *(f"{part}.weight" for part in parts)
        )
        if sizes.qkv_bias:
            ours[f"{here}.attention.qkv.bias"] = take(*(f"{part}.bias" for part in parts))
        ours[f"{here}.attention.out.weight"] = take(f"{attention}.o_proj.weight")
        for norm in ("q_norm", "k_norm") if sizes.qk_norm else ():
            ours[f"{here}.attention.{norm}.weight"] = take(f"{attention}.{norm}.weight")
        ours[f"{here}.feed_forward.gate_up.weight"] = joined(
            f"{mlp}.gate_up_proj.weight", f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight"
        )
        ours[f"{here}.feed_forward.down.weight"] = take(f"{mlp}.down_proj.weight")
    if not sizes.tied_embeddings:
        ours["head.weight"] = take(head)
    elif head in theirs and not torch.equal(take(head), ours["embedding.weight"]):
        raise UserError(f"{source.folder}: tie_word_embeddings is true, and lm_head.weight is not the embedding")
    # Old checkpoints also have the frequencies, which follow from theta.
    if left := sorted(name for name in theirs if not name.endswith("rotary_emb.inv_freq")):
        raise UserError(f"{source.folder}: this project's decoder has no place for {', '.join(left[:3])}")
    _fold(ours, source, sizes)
    return ours


def _fold(ours: dict[str, Tensor], source: Source, sizes: ModelConfig) -> None:
    """Multiplies the weights, in place, by the scales that a class applies and our decoder does not.

    Our decoder scales scores by the width of a head, and embeddings and norms by nothing.
    """
    architecture = architecture_of(source.config)
    if architecture.one_more:
        for name in ours:
            if name.endswith("norm.weight"):
                ours[name] += 1
        scale = sizes.width**0.5
        ours["embedding.weight"] *= scale
        if sizes.tied_embeddings:  # the head is the scaled embedding, so its input must be smaller
            ours["norm.weight"] /= scale
    if "query_pre_attn_scalar" in architecture.defaults:
        scale = (sizes.head_dim / source.config.number("query_pre_attn_scalar")) ** 0.5
        for layer in range(sizes.layers):
            name = f"blocks.{layer}.attention.{'q_norm' if sizes.qk_norm else 'qkv'}.weight"
            ours[name][: sizes.heads * sizes.head_dim] *= scale  # a norm has fewer rows
    rotary = rotary_of(source)
    # The extension sharpens the products of all channels. Biases of keys need no change: on channels without rotation
    # they add the same to all scores of a query.
    if rotary.unrotated_scale != 1:
        rotated, queries = int(rotary.others["fraction"] * sizes.head_dim), sizes.heads * sizes.head_dim
        for layer in range(sizes.layers):
            keys = ours[f"blocks.{layer}.attention.qkv.weight"][queries:][: sizes.kv_heads * sizes.head_dim]
            keys[torch.arange(len(keys)) % sizes.head_dim >= rotated] *= rotary.unrotated_scale


def _read(source: Source) -> dict[str, Tensor]:
    """The weights of the part for text, under their own names without its prefix and those of wrappers."""
    prefix = source.config.values["prefix"]
    found: dict[str, Tensor] = {}
    for path in source.weights:
        try:
            there = load_file(path)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} is damaged: {error}; download or copy it again") from error
        for given, weight in there.items():
            name = ".".join(part for part in given.split(".") if part not in _WRAPPERS)
            if name in found:
                raise UserError(f"{source.folder}: its weights have {name} twice, once as {given}: leave one out")
            found[name] = weight
    found = {name.removeprefix(prefix): weight for name, weight in found.items() if name.startswith(prefix)}
    for name, weight in found.items():
        if weight.dtype not in FLOATS:
            raise UserError(f"{source.folder}: {name} is {weight.dtype}, and quantised weights are not read")
    return found
