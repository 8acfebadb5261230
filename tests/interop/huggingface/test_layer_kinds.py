"""What the fields of a configuration say of its layers; test_logits.py compares logits."""

from typing import Any

import pytest

from extrapolate.interop.huggingface.rotary import LayerKinds, layer_kinds
from extrapolate.names import LONGEST

SLIDING = {"use_sliding_window": True, "sliding_window": 12}
ALL, LAST = ["sliding_attention"], ["full_attention"]


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({}, LayerKinds("rnope", {"every": 4, "window": LONGEST}, None)),
        ({"no_rope_layer_interval": 2}, LayerKinds("rnope", {"every": 2, "window": LONGEST}, None)),
        ({"no_rope_layers": [1, 1, 1, 1]}, LayerKinds("rope", {}, None)),
        ({"no_rope_layers": [0, 0, 0, 0]}, LayerKinds("none", {}, None)),
        ({**SLIDING, "layer_types": ALL * 3 + LAST}, LayerKinds("rnope", {"every": 4, "window": 12}, None)),
        ({**SLIDING, "layer_types": ALL * 4, "no_rope_layers": [1, 1, 1, 1]}, LayerKinds("rope", {}, 12)),
        ({"sliding_window": 12}, LayerKinds("rnope", {"every": 4, "window": LONGEST}, None)),
    ],
)
def test_layers_that_an_encoding_has(config: dict[str, Any], kinds: LayerKinds) -> None:
    assert layer_kinds({"architecture": "SmolLM3ForCausalLM", **config}, 4) == kinds


@pytest.mark.parametrize(
    "config",
    [
        {"no_rope_layers": [0, 1, 1, 0]},
        {**SLIDING, "layer_types": ALL * 3 + LAST, "sliding_window": 1.5},
        {"no_rope_layers": [1, 0, 1]},
        {"no_rope_layers": [1, 0, 1, 1]},
        {"layer_types": ["chunked_attention"] * 4},
        SLIDING,  # where nothing else is said, the layers without rotation have the window
        {**SLIDING, "layer_types": ALL * 4},
        {**SLIDING, "layer_types": ALL + LAST * 3},
        {**SLIDING, "layer_types": ALL * 2 + LAST * 2, "no_rope_layers": [1, 1, 1, 1]},
        {**SLIDING, "layer_types": ALL * 2 + LAST * 2, "no_rope_layers": [0, 0, 0, 0]},
    ],
)
def test_layers_that_none_has(config: dict[str, Any]) -> None:
    assert layer_kinds({"architecture": "SmolLM3ForCausalLM", **config}, 4) is None
