"""Checkpoints of Hugging Face against transformers' own models: the same logits, or a refusal that names the field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from extrapolate.errors import UserError
from extrapolate.extensions import recipe as recipes
from extrapolate.interop import huggingface
from extrapolate.model.decoder import Model
from extrapolate.model.plan import PLAIN
from extrapolate.runs.weights import load_weights

transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
ORIGINAL = {"original_max_position_embeddings": 32, "rope_theta": 500.0}
LLAMA3 = ORIGINAL | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = ORIGINAL | {"rope_type": "yarn", "factor": 4.0}
LONGROPE = ORIGINAL | {"rope_type": "longrope", "long_factor": [1, 1.5, 2, 3, 4, 4, 4, 5.5], "short_factor": [1.1] * 8}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
NOPE_LAYERS: dict[str, Any] = {"num_hidden_layers": 4, "pad_token_id": None}
SLIDING = {"use_sliding_window": True, "sliding_window": 12, "pad_token_id": None}


def random_model(kind: str, **changes: Any) -> torch.nn.Module:
    """transformers' model with random weights, large enough that every part matters."""
    config = getattr(transformers, f"{kind}Config")(**SIZES | changes)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.1 + (1.0 if weight.ndim == 1 else 0.0))
    return model


@pytest.fixture
def saved(tmp_path: Path, bpe: Tokenizer) -> Callable[..., tuple[Path, torch.nn.Module]]:
    """Saves a random model as transformers does, and gives its folder and the model."""

    def save(kind: str = "Llama", *, options: dict[str, Any] | None = None, **changes: Any) -> Any:
        model = random_model(kind, **changes)
        folder = tmp_path / "checkpoint"
        model.save_pretrained(folder, **options or {})
        bpe.save(str(folder / "tokenizer.json"))
        return folder, model

    return save


def rewrite(folder: Path, **changes: Any) -> None:
    """Changes fields of config.json; those that become ... go."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


def ours(folder: Path, tokens: Tensor, seq_len: int | None = None) -> Tensor:
    """Logits of the checkpoint as this project reads it."""
    source = huggingface.find(str(folder))
    rotary, sizes = huggingface.rotary_of(source, seq_len), huggingface.sizes_of(source)
    model = Model(sizes, rotary.encoding, rotary.arguments, rotary.seq_len).eval()
    load_weights(model, huggingface.weights_of(source, sizes), str(folder))
    plan = PLAIN
    if rotary.extension is not None:
        plan = recipes.parse(rotary.extension).plan(model.encoding, rotary.seq_len, tokens.shape[1])
    with torch.inference_mode():
        return model(tokens, plan)


def theirs(folder: Path, tokens: Tensor) -> Tensor:
    """Logits of the checkpoint as transformers reads it, afresh: some rotary embeddings remember the longest input."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(input_ids=tokens).logits


def agree(folder: Path, length: int, seq_len: int | None = None) -> None:
    tokens = torch.randint(0, 97, (2, length), generator=torch.Generator().manual_seed(length))
    expected = theirs(folder, tokens)
    assert expected.std() > 0.1
    torch.testing.assert_close(ours(folder, tokens, seq_len), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"num_key_value_heads": 4}),
        ("Llama", {"num_key_value_heads": 1, "head_dim": 24}),
        ("Llama", {"tie_word_embeddings": True, "rms_norm_eps": 1e-3}),
        ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}),
        ("Mistral", {"sliding_window": None}),
        ("Mistral", {"sliding_window": 24}),
        ("Mistral", {"sliding_window": 24, "rope_parameters": LINEAR}),
        ("Qwen3", {"head_dim": 24}),
        ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True, "rope_parameters": YARN}),
        ("SmolLM3", NOPE_LAYERS | {"no_rope_layer_interval": 3, "rope_parameters": LINEAR}),
        ("SmolLM3", NOPE_LAYERS | {"no_rope_layers": [0, 0, 0, 0]} | SLIDING),
        ("SmolLM3", NOPE_LAYERS | SLIDING | {"layer_types": [*["sliding_attention"] * 3, "full_attention"]}),
        ("SmolLM3", SLIDING | {"no_rope_layers": [1, 1], "layer_types": ["sliding_attention"] * 2}),
        ("Llama", {"rope_parameters": LINEAR}),
        ("Llama", {"rope_parameters": DYNAMIC}),
        ("Llama", {"rope_parameters": LLAMA3}),
        ("Llama", {"rope_parameters": LLAMA3 | {"low_freq_factor": 0.5, "high_freq_factor": 3.0}}),
        ("Llama", {"rope_parameters": LONGROPE}),
        ("Llama", {"rope_parameters": YARN}),
        ("Llama", {"rope_parameters": YARN | {"beta_fast": 6.0, "beta_slow": 0.5}}),
        ("Llama", {"rope_parameters": YARN | {"attention_factor": 1.1386294361119891}}),
    ],
)
@pytest.mark.parametrize("length", [20, 100])  # below and above what the model was trained at
def test_logits_are_those_of_transformers(saved, kind: str, changes: dict[str, Any], length: int) -> None:
    folder, _ = saved(kind, **changes)
    agree(folder, length)


@pytest.mark.parametrize("rope", [LINEAR, LLAMA3, YARN, YARN | {"beta_fast": 6.0}])
def test_another_training_length_is_the_same_function(saved, rope: dict[str, Any]) -> None:
    """It decides what factors count in, not what the model computes."""
    folder, _ = saved(rope_parameters=rope)
    agree(folder, 100, seq_len=256)
    assert huggingface.rotary_of(huggingface.find(str(folder)), 256).seq_len == 256


@pytest.mark.parametrize("rope", [LINEAR, DYNAMIC, LLAMA3, YARN])
def test_the_scaling_matters_in_these_tests(saved, rope: dict[str, Any]) -> None:
    folder, _ = saved(rope_parameters=rope)
    tokens = torch.randint(0, 97, (1, 100), generator=torch.Generator().manual_seed(0))
    scaled = theirs(folder, tokens)
    rewrite(folder, rope_parameters={"rope_theta": rope["rope_theta"], "rope_type": "default"})
    assert (scaled - theirs(folder, tokens)).abs().max() > 0.01


@pytest.mark.parametrize(
    ("rope", "length", "extension"),
    [
        (LINEAR, 64, "pi:factor=4"),
        (DYNAMIC, 64, "dynamic-ntk:factor=2"),
        (LLAMA3, 32, "llama3:factor=8,slow=1,fast=4"),
        (YARN, 32, "yarn:factor=4,fast=32,slow=1"),
        ({"rope_type": "default", "rope_theta": 10_000.0}, 64, None),
    ],
)
@pytest.mark.parametrize("old", [True, False])
def test_old_and_new_spelling_of_a_scaling(saved, old: bool, rope: Any, length: int, extension: str | None) -> None:
    folder, _ = saved()
    if old:
        scaling = {("type" if name == "rope_type" else name): rope[name] for name in rope if name != "rope_theta"}
        scaling = None if rope["rope_type"] == "default" else scaling
        rewrite(folder, rope_parameters=..., rope_theta=rope["rope_theta"], rope_scaling=scaling)
    else:
        rewrite(folder, rope_parameters=rope)
    found = huggingface.rotary_of(huggingface.find(str(folder)))
    assert (found.theta, found.seq_len, found.extension) == (rope["rope_theta"], length, extension)
    agree(folder, 50)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_becomes_float32(saved, dtype: torch.dtype) -> None:
    folder, model = saved()
    model.to(dtype).save_pretrained(folder)
    assert load_file(folder / "model.safetensors")["model.norm.weight"].dtype == dtype
    agree(folder, 30)


def test_sharded_weights(saved) -> None:
    folder, _ = saved(options={"max_shard_size": "60KB"})
    assert not (folder / "model.safetensors").exists()
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    agree(folder, 30)


def test_what_a_configuration_leaves_out(saved) -> None:
    """As the first Llama's, which has no field for the base, the head size or the key and value heads."""
    folder, _ = saved(num_key_value_heads=4)
    left_out = dict.fromkeys(("rope_parameters", "head_dim", "num_key_value_heads", "rms_norm_eps", "hidden_act"), ...)
    rewrite(folder, **left_out, attention_bias=..., mlp_bias=..., tie_word_embeddings=...)
    agree(folder, 30)


def test_frequencies_in_old_weights_are_left_aside(saved) -> None:
    folder, _ = saved()
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}, folder / "model.safetensors")
    agree(folder, 30)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures is .*GPT2LMHeadModel.*LlamaForCausalLM"),
        ({"architectures": ["LlamaForCausalLM", "Other"]}, "architectures is "),
        ({"architectures": ...}, "architectures is None"),
        ({"hidden_act": "gelu"}, "hidden_act is gelu"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor is 0\.5"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is .*awq"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is .*only full_attention"),
        ({"hidden_size": ...}, "has no hidden_size"),
        ({"hidden_size": 66, "head_dim": ...}, "hidden_size 66 is not a multiple of 4 heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3, of 4 heads"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5, not a positive whole number"),
        ({"max_position_embeddings": ...}, "has no max_position_embeddings"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is small, not a positive number"),
        ({"original_max_position_embeddings": 0.5}, "original_max_position_embeddings is 0.5"),
        ({"rope_scaling": "linear"}, "rope_scaling is linear, not an object"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "longrope, lacks long_factor, short_factor"),
        ({"rope_parameters": LONGROPE | {"long_factor": [1, "2"]}}, "long_factor is "),
        ({"rope_parameters": LONGROPE | {"attention_factor": 1.0}}, "attention_factor is 1"),
        ({"rope_parameters": {"rope_type": "proportional"}}, "rope_type is proportional"),
        ({"rope_parameters": {"full_attention": LINEAR}}, "does not go with full_attention"),
        ({"rope_parameters": LINEAR | {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"rope_parameters": LINEAR | {"mrope_section": [1, 2]}}, "linear, does not go with mrope_section"),
        ({"rope_parameters": {"rope_type": "linear"}}, "linear, lacks factor"),
        ({"rope_parameters": LINEAR | {"factor": 0.5}}, "factor is 0.5"),
        ({"rope_parameters": LINEAR | {"factor": "two"}}, "factor is two, not a positive number"),
        ({"rope_parameters": DYNAMIC | ORIGINAL}, "max_position_embeddings, which is 64"),
        ({"rope_parameters": YARN | {"attention_factor": 1.0}}, "attention_factor is 1"),
        ({"rope_parameters": YARN | {"truncate": False}}, "truncate is False"),
        ({"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}}, "mscale is 1"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(saved, changes: dict[str, Any], words: str) -> None:
    folder, _ = saved()
    rewrite(folder, **changes)
    with pytest.raises(ValueError, match=words):
        ours(folder, torch.zeros(1, 4, dtype=torch.long))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"no_rope_layers": [0, 1, 1, 0]}, r"no_rope_layers is \[0, 1, 1, 0\], .* no encoding here has such layers"),
        ({"no_rope_layers": 5}, "no_rope_layers is 5"),
        ({"rope_parameters": YARN, "no_rope_layers": [1, 0, 1, 0]}, "yarn, and some layers have no rotation"),
    ],
)
def test_layers_that_no_encoding_has_are_refused(saved, changes: dict[str, Any], words: str) -> None:
    folder, _ = saved("SmolLM3", **NOPE_LAYERS)
    rewrite(folder, **changes)
    with pytest.raises(UserError, match=words):
        ours(folder, torch.zeros(1, 4, dtype=torch.long))


@pytest.mark.parametrize("rope", [DYNAMIC, LONGROPE])
def test_some_scalings_have_the_length_that_they_were_made_for(saved, rope: dict[str, Any]) -> None:
    folder, _ = saved(rope_parameters=rope)
    with pytest.raises(ValueError, match="training length cannot be 48"):
        huggingface.rotary_of(huggingface.find(str(folder)), 48)


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


NORM = "model.norm.weight"
BIAS = "model.layers.0.self_attn.q_proj.bias"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (without("lm_head.weight"), r"lack lm_head\.weight"),
        (without("model.layers.1.self_attn.k_proj.weight"), r"lack model\.layers\.1\.self_attn\.k_proj"),
        (lambda weights: weights | {BIAS: torch.zeros(64)}, r"no place for model\.layers\.0\.self_attn\.q_proj\.bias"),
        (lambda weights: weights | {NORM: torch.ones(64, dtype=torch.int8)}, "int8, and quantised weights"),
        (lambda weights: weights | {NORM: torch.ones(65)}, r"norm\.weight differ"),
    ],
)
def test_weights_that_do_not_fit_are_refused(saved, changed: Any, words: str) -> None:
    folder, _ = saved()
    save_file(changed(load_file(folder / "model.safetensors")), folder / "model.safetensors")
    with pytest.raises(ValueError, match=words):
        ours(folder, torch.zeros(1, 4, dtype=torch.long))


def test_a_head_that_should_be_tied_and_is_not_is_refused(saved) -> None:
    folder, _ = saved()
    rewrite(folder, tie_word_embeddings=True)
    with pytest.raises(ValueError, match="tie_word_embeddings is true, and lm_head"):
        ours(folder, torch.zeros(1, 4, dtype=torch.long))


class TestFiles:
    @pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
    def test_a_missing_file_is_named(self, saved, name: str) -> None:
        folder, _ = saved()
        (folder / name).unlink()
        with pytest.raises(ValueError, match=f"has n.*{name}"):
            huggingface.find(str(folder))

    def test_a_missing_shard_is_named(self, saved) -> None:
        folder, _ = saved(options={"max_shard_size": "60KB"})
        shard = sorted(folder.glob("model-*.safetensors"))[1]
        shard.unlink()
        with pytest.raises(ValueError, match=f"lacks {shard.name}"):
            huggingface.find(str(folder))

    @pytest.mark.parametrize(
        "content",
        [
            "{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "../b.safetensors"}}',
            '{"weight_map": {"a": "/b.safetensors"}}',
        ],
    )  # fmt: skip
    def test_a_damaged_index(self, saved, content: str) -> None:
        folder, _ = saved()
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(content)
        with pytest.raises(ValueError, match=r"index\.json is damaged"):
            huggingface.find(str(folder))

    @pytest.mark.parametrize("content", ["{", "[]"])
    def test_a_damaged_configuration(self, saved, content: str) -> None:
        folder, _ = saved()
        (folder / "config.json").write_text(content)
        with pytest.raises(ValueError, match=r"config\.json is damaged"):
            huggingface.find(str(folder))

    @pytest.mark.parametrize(
        "changed",
        [
            {"layer_types": 5}, {"rms_norm_eps": 10**400}, {"num_hidden_layers": 10**18},
            {"vocab_size": 10**300},
        ],
        ids=lambda changed: next(iter(changed)),
    )  # fmt: skip
    def test_numbers_that_no_model_has(self, saved, changed: dict[str, Any]) -> None:
        folder, _ = saved()
        rewrite(folder, **changed)
        with pytest.raises(UserError, match=r"config\.json: "):
            ours(folder, torch.zeros(1, 4, dtype=torch.long))

    @pytest.mark.parametrize("kept", [0, 100, 3000])
    def test_damaged_weights(self, saved, kept: int) -> None:
        folder, _ = saved()
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:kept])
        source = huggingface.find(str(folder))
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
            huggingface.weights_of(source, huggingface.sizes_of(source))

    @pytest.mark.parametrize("name", ["", "/no/such/folder", "./nowhere", "a/b/c", "a b", "~/nowhere/at/all"])
    def test_what_is_neither_a_folder_nor_a_name(self, name: str) -> None:
        with pytest.raises(ValueError, match="no such folder, and not a name on the Hugging Face Hub"):
            huggingface.find(name)

    def test_what_the_hub_refuses_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import huggingface_hub

        def refuse(name: str, **options: Any) -> str:
            assert name == "nobody/nothing"
            raise OSError("the line is dead")

        monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
        with pytest.raises(ValueError, match=r"hf:nobody/nothing: there is no folder nobody/nothing.*line is dead"):
            huggingface.find("nobody/nothing")

    def test_only_what_is_needed_is_downloaded(self, saved, monkeypatch: pytest.MonkeyPatch) -> None:
        import huggingface_hub
        from huggingface_hub.utils import filter_repo_objects

        folder, _ = saved()
        wanted = ["config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"]
        wanted.append("model-00001-of-00002.safetensors")
        there = [*wanted, "pytorch_model.bin", "consolidated.safetensors", "original/model-1.safetensors", "README.md"]
        asked: list[str] = []

        def download(name: str, allow_patterns: list[str]) -> str:
            asked.extend(filter_repo_objects(there, allow_patterns=allow_patterns))
            return str(folder)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        assert huggingface.find("some/model").folder == folder
        assert asked == wanted

    def test_the_hash_tells_checkpoints_apart(self, saved) -> None:
        folder, model = saved()
        before = huggingface.find(str(folder)).sha256()
        assert huggingface.find(str(folder)).sha256() == before
        rewrite(folder, rms_norm_eps=1e-4)
        other = huggingface.find(str(folder)).sha256()
        with torch.no_grad():
            next(model.parameters())[0, 0] += 1
        model.save_pretrained(folder)
        assert len({before, other, huggingface.find(str(folder)).sha256()}) == 3
