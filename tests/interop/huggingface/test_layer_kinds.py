"""The encoding that a configuration's fields require; test_logits.py compares logits."""

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
        ({"no_rope_layers": [0, 1, 1, 0]}, None),
        ({**SLIDING, "layer_types": ALL * 3 + LAST, "sliding_window": 1.5}, None),
        ({"no_rope_layers": [1, 0, 1]}, None),
        ({"no_rope_layers": [1, 0, 1, 1]}, None),
        ({"layer_types": ["chunked_attention"] * 4}, None),
        (SLIDING, None),  # by default the layers without rotation have the window
        ({**SLIDING, "layer_types": ALL * 4}, None),
        ({**SLIDING, "layer_types": ALL + LAST * 3}, None),
        ({**SLIDING, "layer_types": ALL * 2 + LAST * 2, "no_rope_layers": [1, 1, 1, 1]}, None),
        ({**SLIDING, "layer_types": ALL * 2 + LAST * 2, "no_rope_layers": [0, 0, 0, 0]}, None),
    ],
)
def test_the_encoding_that_has_such_layers(config: dict[str, Any], kinds: LayerKinds | None) -> None:
    assert layer_kinds({"architecture": "SmolLM3ForCausalLM", **config}, 4) == kinds
