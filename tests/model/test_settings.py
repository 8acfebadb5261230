"""Settings of the model that combine with any encoding; tests/interop compares them with transformers'."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from extrapolate.model import llama
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

SIZES: dict[str, Any] = {"vocab_size": 31, "width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8}


def test_every_setting_is_written() -> None:
    plain = ModelConfig(vocab_size=31)
    assert set(plain.model_dump()) == set(ModelConfig.model_fields)
    assert ModelConfig(vocab_size=31, qkv_bias=False, activation="silu").model_dump_json() == plain.model_dump_json()
    changed = ModelConfig(vocab_size=31, qkv_bias=True, activation="gelu_tanh", post_norms=True)
    assert ModelConfig.model_validate_json(changed.model_dump_json()) == changed


def test_biases_start_at_zero_and_leave_all_other_weights_as_they_are() -> None:
    def weights(qkv_bias: bool) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        return Model(ModelConfig(**SIZES, qkv_bias=qkv_bias), "rope", {}, 16).state_dict()

    plain, biased = weights(False), weights(True)
    added = set(biased) - set(plain)
    assert added == {f"blocks.{layer}.attention.qkv.bias" for layer in range(2)}
    assert not any(biased[name].any() for name in added)
    assert all(torch.equal(biased[name], tensor) for name, tensor in plain.items())


def test_a_bias_is_added_where_queries_and_values_read_different_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """ExPE writes positions into what queries and keys read, and not into what values do."""
    torch.manual_seed(0)
    model = Model(ModelConfig(**SIZES, qkv_bias=True), "expe", {}, 16)
    attention, encoding = model.blocks[0].attention, model.encoding
    torch.nn.init.normal_(attention.qkv.bias)
    seen: list[torch.Tensor] = []
    attend = llama.attend
    monkeypatch.setattr(llama, "attend", lambda q, k, v, scoring: seen.extend((q, k, v)) or attend(q, k, v, scoring))
    x_BTD, pos_T = torch.randn(2, 16, 32), torch.arange(16.0)
    attention(x_BTD, encoding, pos_T)
    queries, keys = 4 * 8, 2 * 8
    qk_input_BTD, v_input_BTD = encoding.attention_input(x_BTD, pos_T)
    assert not torch.equal(qk_input_BTD, v_input_BTD)
    weight, bias = attention.qkv.weight, attention.qkv.bias
    rows = (slice(0, queries), slice(queries, queries + keys), slice(queries + keys, None))
    for found, own, x in zip(seen, rows, (qk_input_BTD, qk_input_BTD, v_input_BTD), strict=True):
        expected = F.linear(x, weight[own], bias[own])
        torch.testing.assert_close(found.transpose(1, 2).flatten(-2), expected, rtol=0, atol=1e-5)


def test_what_is_normalised_after_a_layer_has_no_size() -> None:
    """With norms after attention and feed-forward, the size of their last weights means nothing."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 31, (2, 16))
    for post_norms in (False, True):
        model = Model(ModelConfig(**SIZES, post_norms=post_norms), "rope", {}, 16).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
            before = model(tokens)
            for block in model.blocks:
                block.attention.out.weight *= 3
                block.feed_forward.down.weight *= 5
            assert torch.allclose(model(tokens), before, atol=1e-3) == post_norms
