"""What all encodings share: their labels, and what they refuse."""

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


@pytest.mark.parametrize(
    ("name", "arguments", "dims", "message"),
    [
        ("rope", {"theta": "1"}, DIMS, "theta must be more than 1"),
        ("rope", {}, Dims(width=12, heads=4, head_dim=3, seq_len=8), "even head size"),
        ("p-rope", {"p": "1.5"}, DIMS, "p must be between 0 and 1"),
        ("partial-rope", {"fraction": "0.2"}, DIMS, "even number of them"),
        ("partial-rope", {"fraction": "0.05"}, DIMS, "makes 0"),
        ("hope", {"kept": "9"}, DIMS, "between 0 and 8 pairs"),
        ("fope", {"kept": "0"}, DIMS, "between 1 and 8 pairs"),
        ("xpos", {"gamma": "0"}, DIMS, "must be positive"),
        ("pope", {"theta": "0"}, DIMS, "theta must be more than 1"),
        ("rnope", {"every": "5"}, DIMS, "between 1 and the 4 layers"),
        ("sinusoidal", {}, Dims(width=9, heads=1, head_dim=9, seq_len=8), "even width"),
        ("sinusoidal", {"theta": "0"}, DIMS, "theta must be positive"),
        ("expe", {"size": "65"}, DIMS, "between 0 and the width 64"),
        ("t5", {"buckets": "5"}, DIMS, "even number"),
        ("t5", {"buckets": "32", "max_distance": "16"}, DIMS, "more than 16"),
        ("fire", {"width": "0"}, DIMS, "must be positive"),
        ("sandwich", {"size": "3"}, DIMS, "positive even number"),
        ("shaw", {"max_distance": "0"}, DIMS, "at least 1"),
        ("cope", {"count": "1"}, DIMS, "at least 2"),
        ("dape", {"base": "rope"}, DIMS, "means nothing for RoPE: its base must have a bias"),
        ("random", {"base": "none"}, DIMS, "means nothing for NoPE: it has no positions"),
        ("random", {"base": "rop"}, DIMS, "did you mean 'rope'"),
    ],
)
def test_refused_arguments(name: str, arguments: dict[str, str], dims: Dims, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer_encodings(name, arguments, dims)


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
