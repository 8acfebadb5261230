"""The model against transformers' Llama and Qwen 3, its presets, and what combines with any encoding."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, encodings
from extrapolate.model import attention
from extrapolate.model.config import ModelConfig
from extrapolate.model.dropout import Dropout
from extrapolate.model.llama import Attention, FeedForward, SSMax
from extrapolate.model.model import Model, layer_encodings
from extrapolate.runs.config import DataConfig, EncodingConfig, TrainedConfig
from extrapolate.runs.resolve import run_name
from extrapolate.runs.training_config import TrainingConfig


def with_llama_weights(sizes: ModelConfig) -> tuple[Model, torch.nn.Module]:
    """Our model and transformers' of the same sizes, with the same random weights."""
    from training_speed import transformers_llama

    return with_weights_of(transformers_llama(sizes, max_length=512).eval(), sizes)


def with_weights_of(theirs: torch.nn.Module, sizes: ModelConfig) -> tuple[Model, torch.nn.Module]:
    """Our model, and transformers' with random weights, which ours has too."""
    torch.manual_seed(0)
    ours = Model(sizes, "rope", {}, 64).eval()
    source = theirs.state_dict()
    with torch.no_grad():
        for weight in source.values():
            weight.copy_(torch.randn_like(weight) * 0.08 + (1.0 if weight.ndim == 1 else 0.0))
        ours.embedding.weight.copy_(source["model.embed_tokens.weight"])
        ours.head.weight.copy_(source["lm_head.weight"])
        ours.norm.weight.copy_(source["model.norm.weight"])
        for i, block in enumerate(ours.blocks):
            theirs_of = {
                key.removeprefix(f"model.layers.{i}."): w for key, w in source.items() if f"layers.{i}." in key
            }
            qkv = [theirs_of[f"self_attn.{name}_proj.weight"] for name in "qkv"]
            gate_up = [theirs_of[f"mlp.{name}_proj.weight"] for name in ("gate", "up")]
            block.attention.qkv.weight.copy_(torch.cat(qkv))
            block.attention.out.weight.copy_(theirs_of["self_attn.o_proj.weight"])
            if sizes.qk_norm:
                block.attention.q_norm.weight.copy_(theirs_of["self_attn.q_norm.weight"])
                block.attention.k_norm.weight.copy_(theirs_of["self_attn.k_norm.weight"])
            block.feed_forward.gate_up.weight.copy_(torch.cat(gate_up))
            block.feed_forward.down.weight.copy_(theirs_of["mlp.down_proj.weight"])
            block.attention_norm.weight.copy_(theirs_of["input_layernorm.weight"])
            block.feed_forward_norm.weight.copy_(theirs_of["post_attention_layernorm.weight"])
    return ours, theirs


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("gradients", [True, False], ids=["explicit", "fused"])
def test_logits_are_those_of_transformers(kv_heads: int, tied: bool, gradients: bool) -> None:
    sizes = ModelConfig(
        vocab_size=97, width=64, layers=3, heads=4, kv_heads=kv_heads, head_dim=24, ff_width=112, tied_embeddings=tied
    )
    ours, theirs = with_llama_weights(sizes)
    x = torch.randint(0, 97, (2, 150))
    with torch.set_grad_enabled(gradients):
        actual, expected = ours(x), theirs(input_ids=x).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_the_loss_is_the_mean_over_targets() -> None:
    model = Model(ModelConfig(vocab_size=31), "rope", {}, 16)
    x = torch.randint(0, 31, (3, 17))
    probabilities = model(x[:, :-1]).double().log_softmax(dim=-1)
    by_hand = -probabilities.gather(-1, x[:, 1:, None]).mean()
    assert model.loss(x[:, :-1], x[:, 1:]).item() == pytest.approx(by_hand.item(), abs=1e-5)


@pytest.mark.parametrize("name", encodings.names())
def test_bfloat16_autocast_keeps_the_loss_in_float32(name: str) -> None:
    model = Model(ModelConfig(vocab_size=31), name, {}, 16)
    x = torch.randint(0, 31, (3, 17))
    exact = model.loss(x[:, :-1], x[:, 1:])
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.loss(x[:, :-1], x[:, 1:])
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact.item(), abs=0.02)


@pytest.mark.parametrize("name", encodings.names())
def test_one_seed_gives_every_encoding_the_same_weights_elsewhere(name: str) -> None:
    models = []
    for encoding in ("none", name):
        torch.manual_seed(0)
        models.append(Model(ModelConfig(vocab_size=31), encoding, {}, 16))
    plain, other = (model.state_dict() for model in models)
    assert all(torch.equal(plain[key], other[key]) for key in plain)


def test_dropout_drops_in_training_alone() -> None:
    model = Model(ModelConfig(vocab_size=31, dropout=0.5), "rope", {}, 16)
    x = torch.randint(0, 31, (1, 16))
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_dropout_drops_what_enters_the_residual_stream() -> None:
    """The embedding with its positions, and what attention and the feed-forward network add to it; nothing else."""
    model = Model(ModelConfig(vocab_size=31, layers=2, dropout=0.5), "learned", {}, 16)
    dropped: list[Tensor] = []
    parts: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, Dropout):
            module.register_forward_pre_hook(lambda _, inputs: dropped.append(inputs[0]))
        if isinstance(module, (Attention, FeedForward)):
            module.register_forward_hook(lambda *arguments: parts.append(arguments[-1]))
    x = torch.randint(0, 31, (1, 16))
    model(x)
    entering = model.encoding.embed(model.embedding(x), torch.arange(16.0))
    assert len(dropped) == 5
    assert torch.equal(dropped[0], entering)
    assert all(given is made for given, made in zip(dropped[1:], parts, strict=True))


def transformers_qwen3(sizes: ModelConfig) -> torch.nn.Module:
    """A Llama whose queries and keys are normalised head by head, before the rotation."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.width,
        intermediate_size=sizes.ff_width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        rms_norm_eps=sizes.norm_eps,
        tie_word_embeddings=sizes.tied_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    return Qwen3ForCausalLM(config)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("gradients", [True, False], ids=["explicit", "fused"])
def test_with_qk_norm_the_logits_are_those_of_qwen3(kv_heads: int, gradients: bool) -> None:
    sizes = ModelConfig(
        vocab_size=97, width=64, layers=3, heads=4, kv_heads=kv_heads, head_dim=24, ff_width=112, qk_norm=True
    )
    ours, theirs = with_weights_of(transformers_qwen3(sizes).eval(), sizes)
    x = torch.randint(0, 97, (2, 150))
    with torch.set_grad_enabled(gradients):
        actual, expected = ours(x), theirs(input_ids=x).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("qk_norm", [True, False])
def test_qk_norm_makes_the_sizes_of_queries_and_keys_irrelevant(qk_norm: bool) -> None:
    torch.manual_seed(0)
    sizes = ModelConfig(vocab_size=31, qk_norm=qk_norm)
    module = Attention(sizes, 16)
    encoding = layer_encodings("rope", {}, Dims(sizes.width, sizes.heads, sizes.head_dim, 16))[0]
    x, pos = torch.randn(2, 16, sizes.width), torch.arange(16.0)
    before = module(x, encoding, pos)
    with torch.no_grad():
        module.qkv.weight[: 2 * sizes.heads * sizes.head_dim] *= 7.0  # queries and keys
    assert torch.allclose(module(x, encoding, pos), before, atol=1e-3) == qk_norm


def ssmax_by_hand(q: Tensor, k: Tensor, v: Tensor, bias_BHTT: Tensor, s_H: Tensor, window: int | None) -> Tensor:
    """Each row is the softmax of s ln(i + 1) times its scores, bias included, in float64."""
    q, k, v = q.double(), k.double(), v.double()
    mixed = torch.zeros_like(q)
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in q.shape[:3])).tolist():
        g, first = h * k.shape[1] // q.shape[1], 0 if window is None else max(0, i + 1 - window)
        scores = k[b, g, first : i + 1] @ q[b, h, i] / math.sqrt(q.shape[-1]) + bias_BHTT[b, h, i, first : i + 1]
        mixed[b, h, i] = (s_H[h].item() * math.log(i + 1) * scores).softmax(dim=0) @ v[b, g, first : i + 1]
    return mixed


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(
    ("name", "arguments"), [("none", {}), ("alibi", {}), ("kerple", {}), ("fox", {}), ("rnope", {"window": "4"})]
)
@pytest.mark.parametrize("path", ["one piece", "evaluation", "chunks", "long training"])
def test_ssmax_multiplies_the_scores_and_the_bias(
    path: str, name: str, arguments: dict[str, str], kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    length, heads, head_dim, width = 19, 4, 8, 12
    if path in ("chunks", "long training"):
        monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 5)
    if path == "long training":
        monkeypatch.setattr(attention, "EXPLICIT_UP_TO", 0)
    encoding = layer_encodings(name, arguments, Dims(width, heads, head_dim, seq_len=16, layers=2))[0]
    assert encoding.window == (4 if name == "rnope" else None)
    q, k, v = (torch.randn(2, n, length, head_dim) for n in (heads, kv_heads, kv_heads))
    x, s_H, pos = torch.randn(2, length, width), torch.tensor([0.4, 1.0, 2.5, -0.3]), torch.arange(float(length))
    bias = encoding.bias(pos, pos)
    bias = torch.zeros(2, heads, length, length) if bias is None else bias.detach().expand(2, -1, -1, -1)
    if name == "fox":
        sums = encoding.get_submodule("gate")(x).detach().double().sigmoid().log().cumsum(dim=1).mT
        bias = sums[..., :, None] - sums[..., None, :]
    scale_HT = torch.stack([s * torch.arange(1.0, length + 1).log() for s in s_H])
    expected = ssmax_by_hand(q, k, v, bias.double(), s_H, encoding.window)
    with torch.set_grad_enabled(path in ("one piece", "long training")):
        actual = attention.attend(q, k, v, attention.Scoring(encoding, pos, encoding.prepare(x), scale_HT))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gradients", [True, False])
def test_a_layer_with_ssmax_uses_its_own_factors(gradients: bool) -> None:
    torch.manual_seed(0)
    sizes = ModelConfig(vocab_size=31, width=24, heads=3, kv_heads=3, head_dim=8, ssmax=True)
    module = Attention(sizes, 16)
    encoding = layer_encodings("alibi", {}, Dims(24, 3, 8, 16))[0]
    x, pos = torch.randn(2, 30, 24), torch.arange(30.0)
    with torch.set_grad_enabled(gradients):
        assert module.ssmax is not None
        module.ssmax.s_H.data.copy_(torch.tensor([0.2, 1.3, 0.8]))
        actual = module(x, encoding, pos)
    q, k, v = (
        part.unflatten(-1, (3, 8)).transpose(1, 2) for part in (x @ module.qkv.weight.T).detach().split(24, dim=-1)
    )
    bias = encoding.bias(pos, pos)
    assert bias is not None
    mixed = ssmax_by_hand(q, k, v, bias.expand(2, -1, -1, -1), module.ssmax.s_H, None)
    expected = mixed.transpose(1, 2).flatten(-2) @ module.out.weight.T.double()
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seq_len", [2, 64, 512])
def test_ssmax_starts_at_1_on_average_over_a_training_window(seq_len: int) -> None:
    module = SSMax(heads=3, seq_len=seq_len)
    factor_HT = module(4 * seq_len)
    assert factor_HT.shape == (3, 4 * seq_len)
    assert factor_HT[:, :seq_len].mean(dim=1).tolist() == pytest.approx([1.0] * 3, rel=1e-5)
    assert factor_HT[:, 0].tolist() == [0.0] * 3
    assert (factor_HT[:, -1] / factor_HT[:, 1]).tolist() == pytest.approx([math.log2(4 * seq_len)] * 3, rel=1e-5)


def test_every_layer_learns_a_factor_for_each_head() -> None:
    model = Model(ModelConfig(vocab_size=31, ssmax=True), "rope", {}, 16)
    x = torch.randint(0, 31, (3, 17))
    model.loss(x[:, :-1], x[:, 1:]).backward()
    factors = [parameter for name, parameter in model.named_parameters() if "ssmax" in name]
    assert [tuple(parameter.shape) for parameter in factors] == [(4,)] * 4
    for parameter in factors:
        assert parameter.grad is not None
        assert (parameter.grad != 0).all()


@pytest.mark.parametrize(
    ("used", "label", "folder"),
    [
        ({}, "RoPE", "rope-L64-s0"),
        ({"ssmax": True}, "RoPE+SSMax", "rope-ssmax-L64-s0"),
        ({"qk_norm": True}, "RoPE+QK-norm", "rope-qk-norm-L64-s0"),
        ({"ssmax": True, "qk_norm": True}, "RoPE+SSMax+QK-norm", "rope-ssmax-qk-norm-L64-s0"),
        ({"qk_norm": True, "qkv_bias": True}, "RoPE+QK-norm+QKV-bias", "rope-qk-norm-qkv-bias-L64-s0"),
        ({"canon": True}, "RoPE+Canon", "rope-canon-L64-s0"),
        ({"differential": True}, "RoPE+differential", "rope-differential-L64-s0"),
        ({"output_gate": True, "sinks": True}, "RoPE+sinks+output-gate", "rope-sinks-output-gate-L64-s0"),
        ({"activation": "gelu_tanh", "post_norms": True}, "RoPE+GELU+post-norms", "rope-gelu-post-norms-L64-s0"),
    ],
)
def test_what_is_combined_with_an_encoding_is_in_its_names(used: dict[str, Any], label: str, folder: str) -> None:
    sizes = ModelConfig(vocab_size=31, **used)
    model = Model(sizes, "rope", {}, 64)
    assert model.label() == label
    config = TrainedConfig(
        preset="tiny",
        encoding=EncodingConfig(name="rope", arguments=model.encoding.arguments()),
        model=sizes,
        training=TrainingConfig(seq_len=64),
        data=DataConfig(path="store", source="made up", corpus_hash="0123456789abcdef"),
    )
    assert run_name(config) == folder


def test_a_label_has_the_arguments_before_the_combinations() -> None:
    model = Model(ModelConfig(vocab_size=31, ssmax=True), "rope", {"theta": 500.0}, 64)
    assert model.label() == "RoPE(theta=500)+SSMax"


def test_qk_norm_in_bfloat16_is_computed_in_float32(recwarn: pytest.WarningsRecorder) -> None:
    """And so without a warning from torch on the way."""
    sizes = ModelConfig(vocab_size=61, width=32, layers=1, heads=2, kv_heads=2, head_dim=16, ff_width=48, qk_norm=True)
    model = Model(sizes, "rope", {}, 16)
    tokens = torch.randint(0, 61, (2, 16))
    with torch.autocast("cpu", torch.bfloat16):
        model.loss(tokens, tokens).backward()
    assert not [warning for warning in recwarn if "dtype" in str(warning.message)]
