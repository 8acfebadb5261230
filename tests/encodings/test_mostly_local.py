"""Encodings with a window in most layers: which layers have it, and how the others turn.

What attention makes of them is in test_rotary.py.
"""

import dataclasses

import pytest
import torch

from extrapolate.encodings.base import Dims, Spectrum
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.model.model import layer_encodings

DIMS = Dims(width=64, heads=4, head_dim=16, seq_len=32)


@pytest.mark.parametrize("every", [1, 3, 4])
@pytest.mark.parametrize("layers", [4, 9, 12])
def test_rnope_has_smollm3s_pattern_of_layers(layers: int, every: int) -> None:
    from transformers import SmolLM3Config

    config = SmolLM3Config(num_hidden_layers=layers, no_rope_layer_interval=every)
    x, pos = torch.randn(1, 4, 6, 16), torch.arange(6.0)
    rotated, _ = RoPE(DIMS).rotate(x, x, pos, pos)
    instances = layer_encodings("rnope", {"every": every}, dataclasses.replace(DIMS, layers=layers))
    for layer, (instance, has_rope) in enumerate(zip(instances, config.no_rope_layers, strict=True)):
        assert has_rope == ((layer + 1) % every != 0)
        for actual in instance.rotate(x, x, pos, pos):
            assert torch.equal(actual, rotated if has_rope else x)
        assert instance.window == (16 if has_rope else None)


def test_rnope_of_few_layers_ends_without_an_encoding() -> None:
    def windows(layers: int) -> list[int | None]:
        return [layer.window for layer in layer_encodings("rnope", {}, dataclasses.replace(DIMS, layers=layers))]

    assert windows(1) == [None]
    assert windows(2) == [16, None]
    assert windows(5) == [16, 16, 16, None, 16]


def test_local_global_has_gemma_3s_pattern_of_layers_and_frequencies() -> None:
    from transformers import Gemma3TextConfig
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

    config = Gemma3TextConfig(num_hidden_layers=14, head_dim=16, sliding_window=9)
    rotary = Gemma3RotaryEmbedding(config)
    arguments = {"window": 9, "theta": 1_000_000.0, "local_theta": 10_000.0}
    instances = layer_encodings("local-global", arguments, dataclasses.replace(DIMS, layers=14))
    for instance, kind in zip(instances, config.layer_types, strict=True):
        assert instance.window == (9 if kind == "sliding_attention" else None)
        expected = getattr(rotary, f"{kind}_inv_freq")
        torch.testing.assert_close(instance.scaled_frequencies(torch.device("cpu")), expected, rtol=1e-6, atol=0)


def test_extensions_of_frequencies_leave_local_layers_alone() -> None:
    layers = layer_encodings("local-global", {"every": 2}, dataclasses.replace(DIMS, layers=4))
    plan = Plan(frequency_scale=tuple(1 / (m + 1) for m in range(8)))
    for layer in layers:
        before, after = (one.scaled_frequencies(torch.device("cpu")) for one in (layer, layer.extended(plan)))
        assert torch.equal(after, before * torch.tensor(plan.frequency_scale) if layer.window is None else before)
        assert layer.spectrum() == Spectrum(1_000_000.0, 8)
