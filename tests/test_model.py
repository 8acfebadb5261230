"""The model against transformers' Llama, and its presets."""

import pytest
import torch

from extrapolate.config import PRESETS, ModelConfig
from extrapolate.encodings.base import encodings
from extrapolate.model import Model


def with_llama_weights(sizes: ModelConfig) -> tuple[Model, torch.nn.Module]:
    """Our model and transformers' of the same sizes, with the same random weights."""
    from extrapolate.benchmark.training import transformers_llama

    torch.manual_seed(0)
    theirs = transformers_llama(sizes, max_length=512).eval()
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


@pytest.mark.parametrize(("preset", "millions"), [("expe-35m", 35.2), ("expe-135m", 135.3), ("expe-342m", 341.9)])
def test_presets_have_the_papers_parameter_counts(preset: str, millions: float) -> None:
    with torch.device("meta"):
        model = Model(ModelConfig(**PRESETS[preset]["model"]), "rope", {}, 512)
    assert model.parameter_count() / 1e6 == pytest.approx(millions, abs=0.05)


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
