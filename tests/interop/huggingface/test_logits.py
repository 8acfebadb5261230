"""Checkpoints of Hugging Face against transformers' own models: the same logits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from extrapolate.errors import UserError
from extrapolate.interop import huggingface

ORIGINAL = {"original_max_position_embeddings": 32, "rope_theta": 500.0}
LLAMA3 = ORIGINAL | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = ORIGINAL | {"rope_type": "yarn", "factor": 4.0}
LONGROPE = ORIGINAL | {"rope_type": "longrope", "long_factor": [1, 1.5, 2, 3, 4, 4, 4, 5.5], "short_factor": [1.1] * 8}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
NOPE_LAYERS: dict[str, Any] = {"num_hidden_layers": 4, "pad_token_id": None}
GEMMA = {"head_dim": 24, "pad_token_id": None}
NO_CAPS = {"final_logit_softcapping": None, "attn_logit_softcapping": None}
LOCAL = {"num_hidden_layers": 7, "sliding_window": 12}
TWO_THETAS = {
    "full_attention": LINEAR | {"rope_theta": 300_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
}
PHI3 = {"pad_token_id": None, "original_max_position_embeddings": 64}
PARTIAL_LONGROPE = LONGROPE | {"long_factor": [1, 2, 3, 4], "short_factor": [1.1] * 4, "partial_rotary_factor": 0.5}
GLM = {"head_dim": 24, "pad_token_id": None}
SLIDING = {"use_sliding_window": True, "sliding_window": 12, "pad_token_id": None}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"num_key_value_heads": 1, "head_dim": 24}),
        ("Llama", {"tie_word_embeddings": True, "rms_norm_eps": 1e-3}),
        ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}),
        ("Mistral", {"sliding_window": 24, "rope_parameters": LINEAR}),
        ("Qwen3", {"head_dim": 24}),
        ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True, "rope_parameters": YARN}),
        ("Llama", {"hidden_act": "gelu_pytorch_tanh"}),
        ("Qwen2", {}),
        ("Qwen2", {"num_key_value_heads": 4, "tie_word_embeddings": True, "rope_parameters": YARN}),
        ("Qwen2", SLIDING | {"layer_types": ["sliding_attention", "full_attention"], "rope_parameters": LINEAR}),
        ("Qwen3", SLIDING | {"layer_types": ["sliding_attention", "full_attention"], "head_dim": 24}),
        ("Gemma", GEMMA | {"tie_word_embeddings": False}),
        ("Gemma2", GEMMA | NO_CAPS | {"num_hidden_layers": 3, "sliding_window": 12, "query_pre_attn_scalar": 9}),
        ("Gemma3Text", GEMMA | LOCAL),
        ("Gemma3Text", GEMMA | LOCAL | {"query_pre_attn_scalar": 16, "rope_parameters": TWO_THETAS}),
        ("Gemma3Text", GEMMA | LOCAL | {"layer_types": ["full_attention"] * 7}),
        ("Phi3", PHI3),
        ("Phi3", PHI3 | {"sliding_window": 12, "head_dim": 24}),
        ("Phi3", PHI3 | {"partial_rotary_factor": 0.5}),
        ("Phi3", PHI3 | {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32}),
        ("Phi3", PHI3 | {"rope_parameters": PARTIAL_LONGROPE, "original_max_position_embeddings": 32}),
        ("Glm", GLM),
        ("Glm", GLM | {"attention_bias": False, "partial_rotary_factor": 1.0, "rope_parameters": LINEAR}),
        ("SmolLM3", NOPE_LAYERS | {"no_rope_layer_interval": 3, "rope_parameters": LINEAR}),
        ("SmolLM3", NOPE_LAYERS | {"no_rope_layers": [0, 0, 0, 0]} | SLIDING),
        ("SmolLM3", NOPE_LAYERS | SLIDING | {"layer_types": [*["sliding_attention"] * 3, "full_attention"]}),
        ("SmolLM3", SLIDING | {"no_rope_layers": [1, 1], "layer_types": ["sliding_attention"] * 2}),
        ("Llama", {"rope_parameters": LINEAR}),
        ("Llama", {"rope_parameters": DYNAMIC}),
        ("Llama", {"rope_parameters": LLAMA3}),
        ("Llama", {"rope_parameters": LONGROPE}),
        ("Llama", {"rope_parameters": YARN}),
    ],
)
def test_logits_are_those_of_transformers(saved, kind: str, changes: dict[str, Any]) -> None:
    checkpoint = saved(kind, **changes)
    for length in (20, 100):  # below and above what the model was trained at
        checkpoint.agree(length)


@pytest.mark.parametrize("rope", [LINEAR, LLAMA3, YARN])
def test_another_training_length_is_the_same_function(saved, rope: dict[str, Any]) -> None:
    """It decides what factors count in, not what the model computes."""
    checkpoint = saved(rope_parameters=rope)
    checkpoint.agree(100, seq_len=256)
    assert huggingface.rotary_of(checkpoint.source(), 256).seq_len == 256


@pytest.mark.parametrize("rope", [LINEAR, DYNAMIC, LLAMA3, YARN])
def test_the_scaling_matters_in_these_tests(saved, rope: dict[str, Any]) -> None:
    checkpoint = saved(rope_parameters=rope)
    tokens = torch.randint(0, 97, (1, 100), generator=torch.Generator().manual_seed(0))
    scaled = checkpoint.theirs(tokens)
    checkpoint.rewrite(rope_parameters={"rope_theta": rope["rope_theta"], "rope_type": "default"})
    assert (scaled - checkpoint.theirs(tokens)).abs().max() > 0.01


@pytest.mark.parametrize(
    ("rope", "length", "extension"),
    [
        (LINEAR, 64, "pi:factor=4"),
        (DYNAMIC | {"factor": 3.0}, 64, "dynamic-ntk:factor=3"),
        (LLAMA3, 32, "llama3:factor=8"),
        (YARN, 32, "yarn:factor=4"),
        (YARN | {"finetuned": True, "extrapolation_factor": 1.0, "attn_factor": 1}, 32, "yarn:factor=4"),
        ({"rope_type": "default", "rope_theta": 10_000.0}, 64, None),
    ],
)
@pytest.mark.parametrize("old", [True, False])
def test_old_and_new_spelling_of_a_scaling(saved, old: bool, rope: Any, length: int, extension: str | None) -> None:
    checkpoint = saved()
    if old:
        scaling = {("type" if name == "rope_type" else name): rope[name] for name in rope if name != "rope_theta"}
        scaling = None if rope["rope_type"] == "default" else scaling
        checkpoint.rewrite(rope_parameters=..., rope_theta=rope["rope_theta"], rope_scaling=scaling)
    else:
        checkpoint.rewrite(rope_parameters=rope)
    found = huggingface.rotary_of(checkpoint.source())
    assert (found.theta, found.seq_len, found.extension) == (rope["rope_theta"], length, extension)
    checkpoint.agree(50)


@pytest.mark.parametrize("old", [True, False])
def test_old_and_new_spelling_of_two_thetas(saved, old: bool) -> None:
    checkpoint = saved("Gemma3Text", **GEMMA, **LOCAL, rope_parameters=TWO_THETAS)
    if old:
        checkpoint.rewrite(
            rope_parameters=..., layer_types=..., sliding_window_pattern=6, rope_theta=300_000.0,
            rope_local_base_freq=300.0, rope_scaling={"rope_type": "linear", "factor": 4.0},
        )  # fmt: skip
    found = huggingface.rotary_of(checkpoint.source())
    assert (found.encoding, found.extension, found.seq_len) == ("local-global", None, 64)
    assert found.arguments == {"every": 6, "window": 12, "theta": 300_000.0, "local_theta": 300.0, "factor": 4.0}
    checkpoint.agree(100)


FIRST_LLAMAS = ("rope_parameters", "head_dim", "num_key_value_heads", "rms_norm_eps", "hidden_act")


@pytest.mark.parametrize(
    ("kind", "made", "left_out"),
    [
        # As the first Llama's, which has no field for the base, the head size or the key and value heads.
        ("Llama", {"num_key_value_heads": 4}, (*FIRST_LLAMAS, "attention_bias", "mlp_bias", "tie_word_embeddings")),
        (
            "Gemma3Text",
            GEMMA | LOCAL,
            ("rope_parameters", "layer_types", "query_pre_attn_scalar", "tie_word_embeddings"),
        ),
        ("Glm", GLM, ("rope_parameters", "attention_bias", "rms_norm_eps")),
    ],
)
def test_what_a_configuration_leaves_out(saved, kind: str, made: dict[str, Any], left_out: tuple[str, ...]) -> None:
    checkpoint = saved(kind, **made)
    checkpoint.rewrite(**dict.fromkeys(left_out, ...))
    checkpoint.agree(100 if kind == "Gemma3Text" else 30)
    if kind == "Glm":
        assert huggingface.rotary_of(checkpoint.source()).others == {"fraction": 0.5, "pairing": "interleaved"}


def test_the_text_of_a_model_for_text_and_pictures(saved) -> None:
    pictures = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    checkpoint = saved(
        "Gemma3", text_config=GEMMA | LOCAL | {"rope_parameters": TWO_THETAS},
        vision_config=pictures | {"image_size": 28, "patch_size": 14},
        image_token_index=96, boi_token_index=95, eoi_token_index=94, mm_tokens_per_image=4,
    )  # fmt: skip
    assert huggingface.rotary_of(checkpoint.source()).others["factor"] == 4
    names = load_file(checkpoint.folder / "model.safetensors")
    if "language_model.model.norm.weight" not in names:
        pytest.skip("this version of transformers saves the weights by other names than they were released with")
    checkpoint.agree(100)
    checkpoint.rewrite(text_config=...)
    with pytest.raises(UserError, match="text_config is None, not an object"):
        checkpoint.source()


def test_half_precision_and_sharded_weights(saved) -> None:
    checkpoint = saved()
    checkpoint.model.to(torch.bfloat16).save_pretrained(checkpoint.folder)
    assert load_file(checkpoint.folder / "model.safetensors")["model.norm.weight"].dtype == torch.bfloat16
    checkpoint.agree(30)
    checkpoint = saved(options={"max_shard_size": "60KB"})
    (checkpoint.folder / "model.safetensors").unlink()
    assert len(list(checkpoint.folder.glob("model-*.safetensors"))) > 2
    checkpoint.agree(30)


@pytest.mark.parametrize(
    "wrapped", [lambda name: f"module._orig_mod.{name}", lambda name: name.replace("layers.0.", "layers.0._orig_mod.")]
)
def test_names_of_wrappers_are_left_out(saved, wrapped: Callable[[str], str]) -> None:
    checkpoint = saved()
    tokens = torch.arange(30)[None]
    expected, file = checkpoint.theirs(tokens), checkpoint.folder / "model.safetensors"
    save_file({wrapped(name): weight for name, weight in load_file(file).items()}, file)
    torch.testing.assert_close(checkpoint.ours(tokens), expected, rtol=0, atol=1e-5)


def test_a_tied_file_may_have_the_head_alone(saved) -> None:
    checkpoint = saved(tie_word_embeddings=True)
    tokens = torch.arange(30)[None]
    expected, file = checkpoint.theirs(tokens), checkpoint.folder / "model.safetensors"
    weights = load_file(file)
    weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")
    save_file(weights, file)
    torch.testing.assert_close(checkpoint.ours(tokens), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["Llama", "Gemma3Text"])
def test_model_type_says_the_class_that_a_configuration_does_not_name(saved, kind: str) -> None:
    checkpoint = saved(kind)
    checkpoint.rewrite(architectures=...)
    checkpoint.agree(30)


def test_frequencies_in_old_weights_are_left_aside(saved) -> None:
    checkpoint = saved()
    weights = load_file(checkpoint.folder / "model.safetensors")
    save_file(
        weights | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)},
        checkpoint.folder / "model.safetensors",
    )
    checkpoint.agree(30)
