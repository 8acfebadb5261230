"""What a checkpoint asks for and the decoder does not have is refused, by the name of the field."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from extrapolate.errors import UserError
from extrapolate.interop import huggingface

ORIGINAL = {"original_max_position_embeddings": 32, "rope_theta": 500.0}
YARN = ORIGINAL | {"rope_type": "yarn", "factor": 4.0}
LONGROPE = ORIGINAL | {"rope_type": "longrope", "long_factor": [1, 1.5, 2, 3, 4, 4, 4, 5.5], "short_factor": [1.1] * 8}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
LLAMA3 = ORIGINAL | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures is .*GPT2LMHeadModel.*LlamaForCausalLM"),
        ({"hidden_act": "gelu"}, "hidden_act is gelu"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor is 0\.5"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is .*awq"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is .*only full_attention"),
        ({"hidden_size": ...}, "has no hidden_size"),
        ({"max_position_embeddings": ...}, "has no max_position_embeddings"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "longrope, lacks long_factor, short_factor"),
        ({"rope_parameters": LONGROPE | {"attention_factor": 1.0}}, "attention_factor is 1"),
        ({"rope_parameters": {"rope_type": "proportional"}}, "rope_type is proportional"),
        ({"rope_parameters": LINEAR | {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"rope_parameters": {"rope_type": "linear"}}, "linear, lacks factor"),
        ({"rope_parameters": YARN | {"attn_factor": 2.0}}, "yarn, does not go with attn_factor"),
        ({"rope_parameters": YARN | {"attention_factor": 1.0}}, "attention_factor is 1"),
        ({"rope_parameters": YARN | {"truncate": False}}, "truncate is False"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(saved, changes: dict[str, Any], words: str) -> None:
    checkpoint = saved()
    checkpoint.rewrite(**changes)
    with pytest.raises(ValueError, match=words):
        checkpoint.ours(torch.zeros(1, 4, dtype=torch.long))


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (
            "SmolLM3",
            {"no_rope_layers": [0, 1, 1, 0]},
            r"no_rope_layers is \[0, 1, 1, 0\], .* no encoding here has such",
        ),
        (
            "SmolLM3",
            {"rope_parameters": YARN, "no_rope_layers": [1, 0, 1, 0]},
            "yarn, and some layers have no rotation",
        ),
        ("Gemma2", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0, which this project's decoder"),
        ("Gemma2", {"rope_parameters": LLAMA3, "layer_types": MIXED}, "llama3, and some layers have a window"),
        ("Gemma3Text", {"rope_parameters": {"full_attention": YARN}}, "yarn, and some layers have a window"),
        ("Gemma3Text", {"rope_parameters": {"sliding_attention": LINEAR}}, "of sliding_attention is linear"),
        ("Gemma3Text", {"layer_types": [MIXED[1], *MIXED[:2]]}, "layer_types is .*: no encoding here has such layers"),
        ("Qwen2", {"layer_types": MIXED[:2]}, "layer_types is .*use_sliding_window is False, .*: no encoding here"),
        (
            "Qwen2",
            {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1, "layer_types": ...},
            "max_window_layers is 1, .*no encoding here",
        ),
        ("Phi3", {"rope_parameters": LINEAR}, "rope_type is linear, which Phi3ForCausalLM does not have"),
        ("Glm", {"rope_parameters": YARN}, "yarn, and some channels have no rotation"),
    ],
)
def test_what_some_architectures_have_is_refused_by_name(saved, kind: str, changes: dict[str, Any], words: str) -> None:
    more = {"final_logit_softcapping": None, "attn_logit_softcapping": None} if kind == "Gemma2" else {}
    layers = {"SmolLM3": 4, "Gemma2": 3, "Gemma3Text": 3}.get(kind, 2)
    checkpoint = saved(kind, pad_token_id=None, num_hidden_layers=layers, head_dim=16, **more)
    if kind == "Gemma3Text":
        checkpoint.rewrite(layer_types=MIXED)
    checkpoint.rewrite(**changes)
    with pytest.raises(UserError, match=words):
        checkpoint.ours(torch.zeros(1, 4, dtype=torch.long))


@pytest.mark.parametrize("rope", [DYNAMIC, LONGROPE])
def test_some_scalings_have_the_length_that_they_were_made_for(saved, rope: dict[str, Any]) -> None:
    checkpoint = saved(rope_parameters=rope)
    with pytest.raises(ValueError, match="training length cannot be 48"):
        huggingface.rotary_of(checkpoint.source(), 48)


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


NORM = "model.norm.weight"
BIAS = "model.layers.0.self_attn.q_proj.bias"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (without("lm_head.weight"), r"lack lm_head\.weight"),
        (lambda weights: weights | {BIAS: torch.zeros(64)}, r"no place for model\.layers\.0\.self_attn\.q_proj\.bias"),
        (lambda weights: weights | {NORM: torch.ones(64, dtype=torch.int8)}, "int8, and quantised weights"),
        (lambda weights: weights | {f"module.{NORM}": torch.ones(64)}, r"have model\.norm\.weight twice, once as "),
    ],
)
def test_weights_that_do_not_fit_are_refused(saved, changed: Any, words: str) -> None:
    checkpoint = saved()
    save_file(changed(load_file(checkpoint.folder / "model.safetensors")), checkpoint.folder / "model.safetensors")
    with pytest.raises(ValueError, match=words):
        checkpoint.ours(torch.zeros(1, 4, dtype=torch.long))


def test_a_head_that_should_be_tied_and_is_not_is_refused(saved) -> None:
    checkpoint = saved()
    checkpoint.rewrite(tie_word_embeddings=True)
    with pytest.raises(ValueError, match="tie_word_embeddings is true, and lm_head"):
        checkpoint.ours(torch.zeros(1, 4, dtype=torch.long))
