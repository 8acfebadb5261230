"""Reads a checkpoint's config.json, and knows the classes of transformers that it may name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError
from extrapolate.specs import LARGEST_WHOLE


@dataclass(frozen=True)
class Fields:
    """The values of a configuration, and the path of its file."""

    path: Path
    values: Mapping[str, Any]

    def whole(self, name: str) -> int:
        """A field's positive whole number. Raises UserError if it is missing or anything else."""
        value = self.values.get(name)
        if value is None:
            raise UserError(f"{self.path} has no {name}")
        if type(value) is not int or not 1 <= value <= LARGEST_WHOLE:
            raise self.error(f"{name} is {short(value)}, not a positive whole number")
        return value

    def number(self, name: str, usual: float | None = None) -> float:
        """A field's positive number, `usual` if it is missing. Raises UserError if it is anything else."""
        value = usual if self.values.get(name) is None else self.values[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 3.4e38:
            raise self.error(f"{name} is {short(value)}, not a positive number")
        return float(value)

    def flag(self, name: str) -> bool:
        """Whether a field is true; False if it is missing. Raises UserError if it is neither true nor false."""
        value = self.values.get(name)
        if value not in (None, False, True):
            raise self.error(f"{name} is {short(value)}, neither true nor false")
        return bool(value)

    def error(self, text: str) -> UserError:
        """An error that names the configuration's file."""
        return UserError(f"{self.path}: {text}")

    def unmatched(self, name: str, value: Any) -> UserError:
        """An error for a field that requires a scaling that no extension here reproduces."""
        return self.error(f"{name} is {short(value)}, which no extension here reproduces")


def short(value: Any) -> str:
    """A value for a message, truncated."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


LLAMA, MISTRAL, SMOLLM3, PHI3 = (f"{name}ForCausalLM" for name in ("Llama", "Mistral", "SmolLM3", "Phi3"))
QWEN2, QWEN3, GLM = (f"{name}ForCausalLM" for name in ("Qwen2", "Qwen3", "Glm"))
GEMMA, GEMMA2, GEMMA3 = (f"{name}ForCausalLM" for name in ("Gemma", "Gemma2", "Gemma3"))


@dataclass(frozen=True)
class Architecture:
    """What a class computes that its configuration does not say.

    defaults: the values of missing fields that differ between classes. activation: the field that names the activation.
    of_layers: whether layer_types says what each layer sees. qk_norm: whether queries and keys are normalised.
    qkv_bias: whether queries, keys and values have biases; None: as attention_bias says. partial: whether
    partial_rotary_factor counts. pairing: of rotated channels. one_more: whether norms multiply by one more than their
    weight, and embeddings by the square root of the width. post_norms: whether norms also follow each part of a layer.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    activation: str = "hidden_act"
    of_layers: bool = False
    qk_norm: bool = False
    qkv_bias: bool | None = False
    partial: bool = False
    pairing: str = "half"
    one_more: bool = False
    post_norms: bool = False


_QWEN = {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA = {"head_dim": 256, "tie_word_embeddings": True}
_LATER_GEMMA = _GEMMA | {
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
}
_GLM = {
    "num_key_value_heads": 2,
    "head_dim": 128,
    "rms_norm_eps": 1.5625e-7,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
}
ARCHITECTURES = {
    LLAMA: Architecture(),
    MISTRAL: Architecture({"num_key_value_heads": 8, "sliding_window": 4096}),
    QWEN2: Architecture(_QWEN, of_layers=True, qkv_bias=True),
    QWEN3: Architecture(_QWEN | {"head_dim": 128}, of_layers=True, qk_norm=True),
    SMOLLM3: Architecture(
        {"num_key_value_heads": 4, "rope_theta": 2_000_000.0, "tie_word_embeddings": True}, of_layers=True
    ),
    PHI3: Architecture({"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}, partial=True),
    GLM: Architecture(_GLM, qkv_bias=None, partial=True, pairing="interleaved"),
    GEMMA: Architecture(_GEMMA | {"num_key_value_heads": 16, "hidden_act": "gelu_pytorch_tanh"}, one_more=True),
    GEMMA2: Architecture(
        _LATER_GEMMA | {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
        activation="hidden_activation",
        of_layers=True,
        one_more=True,
        post_norms=True,
    ),
    GEMMA3: Architecture(
        _LATER_GEMMA
        | {"vocab_size": 262_208, "num_attention_heads": 8, "max_position_embeddings": 131_072}
        | {"sliding_window_pattern": 6},
        activation="hidden_activation",
        of_layers=True,
        qk_norm=True,
        one_more=True,
        post_norms=True,
    ),
}
# Classes for text and pictures, with the class of the part for text, which is what is read.
TEXT_OF = {"Gemma3ForConditionalGeneration": GEMMA3}
# The class for causal models of each model_type, which a configuration without architectures names alone.
OF_TYPE = {
    "llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "qwen3": QWEN3, "smollm3": SMOLLM3, "phi3": PHI3, "glm": GLM,
    "gemma": GEMMA, "gemma2": GEMMA2, "gemma3_text": GEMMA3, "gemma3": next(iter(TEXT_OF)),
}  # fmt: skip
TEXT = "language_model."  # the prefix of that part's weights
# Fields with the values that the decoder supports; the first is the value of a missing field.
ONLY: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (None, 1.0),
    "quantization_config": (None,),
    "use_sliding_window": (False, None),
    "use_bidirectional_attention": (False, None),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
}
# The names of activations of the feed-forward gate, there and here.
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def completed(given: Fields) -> Fields:
    """Adds to a configuration its missing fields, its class, and the prefix of its weights' names.

    Raises UserError on anything that is not supported.
    """
    if "provenance" in given.values:
        raise UserError(f"{given.path} is of a run: name its folder without hf:")
    architectures = given.values.get("architectures") or OF_TYPE.get(str(given.values.get("model_type")))
    name = architectures[0] if isinstance(architectures, list) and len(architectures) == 1 else architectures
    if not isinstance(name, str) or name not in ARCHITECTURES.keys() | TEXT_OF.keys():
        known = ", ".join((*ARCHITECTURES, *TEXT_OF))
        both = " and ".join(f"{name} is {short(given.values.get(name))}" for name in ("architectures", "model_type"))
        raise given.error(f"{both}; what can be read: {known}")
    said, prefix = given.values, ""
    if name in TEXT_OF:
        name, prefix, text = TEXT_OF[name], TEXT, said.get("text_config")
        if not isinstance(text, dict):
            raise given.error(f"text_config is {short(text)}, not an object")
        said = {"quantization_config": said.get("quantization_config"), **text}
    architecture = ARCHITECTURES[name]
    values = {"hidden_act": "silu", **architecture.defaults, **said, "architecture": name, "prefix": prefix}
    if name == GEMMA and values["hidden_act"] == "gelu":  # the name in its first releases
        values["hidden_act"] = "gelu_pytorch_tanh"
    config = Fields(given.path, values)
    read = {"use_sliding_window": architecture.of_layers, "partial_rotary_factor": architecture.partial}
    read["attention_bias"] = architecture.qkv_bias is None
    for only, allowed in ONLY.items():
        if values.get(only, allowed[0]) not in allowed and not read.get(only):
            raise config.error(f"{only} is {short(values[only])}, which this project's decoder does not have")
    activation = values[architecture.activation]
    if str(activation) not in ACTIVATIONS:
        raise config.error(
            f"{architecture.activation} is {short(activation)}; what can be read: {', '.join(ACTIVATIONS)}"
        )
    layer_types = values.get("layer_types") or []
    alike = isinstance(layer_types, list) and all(kind == "full_attention" for kind in layer_types)
    if not architecture.of_layers and not alike:
        raise config.error(f"layer_types is {short(layer_types)}, and only full_attention is read")
    return config


def architecture_of(config: Fields) -> Architecture:
    """The architecture of a completed configuration."""
    return ARCHITECTURES[config.values["architecture"]]
