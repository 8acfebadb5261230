"""The weights of a checkpoint, under our names."""

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from extrapolate.errors import UserError
from extrapolate.interop.huggingface.source import Source
from extrapolate.model.config import ModelConfig

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def weights_of(source: Source, sizes: ModelConfig) -> dict[str, Tensor]:
    """The weights under our names, float32. Raises UserError where one is missing, damaged or has no place here."""
    theirs = _read(source)

    def take(*names: str) -> Tensor:
        if missing := [name for name in names if name not in theirs]:
            raise UserError(f"{source.folder}: its weights lack {', '.join(missing)}")
        try:
            return torch.cat([theirs.pop(name).float() for name in names])
        except RuntimeError as error:
            raise UserError(f"{source.folder}: {', '.join(names)} do not fit each other: {error}") from None

    ours = {"embedding.weight": take("model.embed_tokens.weight"), "norm.weight": take("model.norm.weight")}
    for i in range(sizes.layers):
        there, here = f"model.layers.{i}", f"blocks.{i}"
        attention = f"{there}.self_attn"
        ours[f"{here}.attention_norm.weight"] = take(f"{there}.input_layernorm.weight")
        ours[f"{here}.attention.qkv.weight"] = take(*(f"{attention}.{name}_proj.weight" for name in "qkv"))
        ours[f"{here}.attention.out.weight"] = take(f"{attention}.o_proj.weight")
        for norm in ("q_norm", "k_norm") if sizes.qk_norm else ():
            ours[f"{here}.attention.{norm}.weight"] = take(f"{attention}.{norm}.weight")
        ours[f"{here}.feed_forward_norm.weight"] = take(f"{there}.post_attention_layernorm.weight")
        gate_up = (f"{there}.mlp.{name}_proj.weight" for name in ("gate", "up"))
        ours[f"{here}.feed_forward.gate_up.weight"] = take(*gate_up)
        ours[f"{here}.feed_forward.down.weight"] = take(f"{there}.mlp.down_proj.weight")
    if not sizes.tied_embeddings:
        ours["head.weight"] = take("lm_head.weight")
    elif "lm_head.weight" in theirs and not torch.equal(take("lm_head.weight"), ours["embedding.weight"]):
        raise UserError(f"{source.folder}: tie_word_embeddings is true, and lm_head.weight is not the embedding")
    # Old checkpoints hold the frequencies too, which follow from theta.
    if left := sorted(name for name in theirs if not name.endswith("rotary_emb.inv_freq")):
        raise UserError(f"{source.folder}: this project's decoder has no place for {', '.join(left[:3])}")
    return ours


def _read(source: Source) -> dict[str, Tensor]:
    """The weights under their own names."""
    found: dict[str, Tensor] = {}
    for path in source.weights:
        try:
            found |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} is damaged: {error}; download or copy it again") from error
    for name, weight in found.items():
        if weight.dtype not in FLOATS:
            raise UserError(f"{source.folder}: {name} is {weight.dtype}, and quantised weights are not read")
    return found
