"""What all encodings share: their labels, and parameters of their own in every layer."""

import pytest
import torch

from extrapolate.encodings.base import Dims, encodings
from extrapolate.model.model import layer_encodings

DIMS = Dims(width=64, heads=4, head_dim=16, seq_len=32, layers=4)


@pytest.mark.parametrize(
    ("name", "arguments", "label"),
    [
        ("rope", {}, "RoPE"),
        ("rope", {"theta": "500000"}, "RoPE(theta=500000)"),
        ("expe", {"size": "16", "start": "-1"}, "ExPE(size=16)"),
        ("none", {}, "NoPE"),
        ("rnope", {"window": "8"}, "RNoPE(window=8)"),
        ("dape", {"base": "kerple"}, "DAPE(KERPLE)"),
        ("random", {}, "Random(RoPE)"),
        ("random", {"base": "expe:size=16", "max": "512"}, "Random(ExPE(size=16), max=512)"),
    ],
)
def test_labels_show_what_is_not_default(name: str, arguments: dict[str, str], label: str) -> None:
    assert layer_encodings(name, arguments, DIMS)[0].label() == label


def test_every_layer_draws_random_parameters_of_its_own() -> None:
    """But for what all layers share."""
    drawn = []
    for name in encodings.names():
        first, *others = (dict(encoding.named_parameters()) for encoding in layer_encodings(name, {}, DIMS))
        for parameter, start in first.items():
            if start.numel() > 1 and start.min() < start.max():
                for other in others:
                    same = parameter in other and torch.equal(other[parameter], start)
                    assert same == (parameter in other and other[parameter] is start), f"{name}: {parameter}"
                drawn.append(name)
    assert {"kerple", "fire", "wall"} <= set(drawn)
