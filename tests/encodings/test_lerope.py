"""LeRoPE: RoPE's formula with other frequencies, one table of them for all layers, and how it is trained."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, scaled_product
from extrapolate.encodings.lerope import LeRoPE
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.training.optimizer import optimizer_of

B, H, T, K = 2, 6, 13, 8
DIMS = Dims(width=20, heads=H, head_dim=K, seq_len=7)
ALPHA = (0.5, -0.25, 1.0, -2.0)
SIZES = ModelConfig(vocab_size=61, width=32, layers=3, heads=2, kv_heads=2, head_dim=16, ff_width=48)


def moved(**arguments: str) -> LeRoPE:
    encoding = LeRoPE(DIMS, theta=10.0, **arguments)
    with torch.no_grad():
        encoding.alpha_M.copy_(torch.tensor(ALPHA))
    return encoding


def window(kv_heads: int = H) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, H, T, K), torch.randn(B, kv_heads, T, K)


def scores(encoding: RoPE, q: Tensor, k: Tensor) -> Tensor:
    pos = torch.arange(float(T))
    with torch.no_grad():
        rotated_q, rotated_k = encoding.rotate(q, k, pos, pos)
    return scaled_product(rotated_q, rotated_k.repeat_interleave(H // k.shape[1], dim=1))


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("scale", [(1.0,) * 4, (0.9, 0.5, 0.4, 0.1)])
def test_lerope_is_its_formula(kv_heads: int, pairing: str, scale: tuple[float, ...]) -> None:
    """What an extension changes, it changes in the frequencies that were learned."""
    q, k = window(kv_heads)
    expected = np.zeros((B, H, T, T))
    for b, h, i, j in np.ndindex(*expected.shape):
        query, key = q[b, h, i].tolist(), k[b, h // (H // kv_heads), j].tolist()
        for m in range(4):
            one, other = (m, m + 4) if pairing == "half" else (2 * m, 2 * m + 1)
            angle = (i - j) * math.exp(ALPHA[m]) * 10.0 ** (-2 * m / K) * scale[m]
            product = complex(query[one], query[other]) * complex(key[one], -key[other])
            expected[b, h, i, j] += (product * complex(math.cos(angle), math.sin(angle))).real / K**0.5
    encoding = moved(pairing=pairing).extended(Plan(frequency_scale=scale))
    torch.testing.assert_close(scores(encoding, q, k).double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


def test_it_starts_as_rope() -> None:
    q, k = window()
    assert torch.equal(scores(LeRoPE(DIMS), q, k), scores(RoPE(DIMS), q, k))


def test_one_table_of_frequencies_is_trained_by_every_layer() -> None:
    torch.manual_seed(0)
    model = Model(SIZES, "lerope", {}, 16)
    tables = {id(layer.alpha_M) for layer in model.encodings}
    assert len(tables) == 1
    assert sum("alpha_M" in name for name, _ in model.named_parameters()) == 1
    tokens = torch.randint(0, 61, (2, 17))
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    gradient = model.encoding.alpha_M.grad
    assert gradient.shape == (8,)
    assert (gradient != 0).all()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_frequencies_have_no_weight_decay(optimizer: str) -> None:
    model = Model(SIZES, "lerope", {}, 16)
    groups = optimizer_of(model, TrainingConfig(seq_len=16, optimizer=optimizer, weight_decay=0.1)).param_groups
    own = [group for group in groups if any(p is model.encoding.alpha_M for p in group["params"])]
    assert [group["weight_decay"] for group in own] == [0.0]
    assert "parts" not in own[0]  # AdamW trains it in either case


def test_frequencies_are_those_that_it_says() -> None:
    encoding = moved()
    rotations = encoding.rotations()
    expected = [math.exp(alpha) * 10.0 ** (-2 * m / K) for m, alpha in enumerate(ALPHA)]
    np.testing.assert_allclose(rotations.frequency_M.numpy(), expected, rtol=1e-6)
