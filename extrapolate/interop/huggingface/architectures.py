"""The classes of transformers that can be read, and what their configurations may say."""

from typing import Any

from extrapolate.errors import UserError
from extrapolate.interop.huggingface.fields import Fields, short

# What a field that an architecture's configuration leaves out stands for, where it is not the same for all.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"num_key_value_heads": 8, "sliding_window": 4096},
    "Qwen3ForCausalLM": {"num_key_value_heads": 32, "head_dim": 128},
    "SmolLM3ForCausalLM": {"num_key_value_heads": 4, "rope_theta": 2_000_000.0, "tie_word_embeddings": True},
}
# Fields that mean another model where they have another value; left out, they have the first.
ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (None, 1.0),
    "quantization_config": (None,),
    "use_sliding_window": (False, None),
}


def completed(given: Fields) -> Fields:
    """The configuration with what it leaves out. Raises UserError on what is not supported."""
    architectures = given.values.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and len(architectures) == 1 else architectures
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UserError(f"{given.path}: architectures is {architectures}; what can be read: {', '.join(ARCHITECTURES)}")
    config = Fields(given.path, {**ARCHITECTURES[name], **given.values, "architecture": name})
    of_layers = name == "SmolLM3ForCausalLM"  # it says of each layer what it has
    for only, allowed in ONLY.items():
        if config.values.get(only, allowed[0]) not in allowed and not (of_layers and only == "use_sliding_window"):
            raise config.error(f"{only} is {short(config.values[only])}, which this project's decoder does not have")
    if of_layers:
        return config
    layer_types = config.values.get("layer_types") or []
    if not isinstance(layer_types, list) or any(kind != "full_attention" for kind in layer_types):
        raise config.error(f"layer_types is {short(config.values['layer_types'])}, and only full_attention is read")
    return config
