"""xPos against x-transformers and its paper's formula, computed pair by pair in float64."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding, scaled_product
from extrapolate.encodings.xpos import XPos
from extrapolate.model.attention import Scoring, attend
from extrapolate.model.model import layer_encodings

K = 16
DIMS = Dims(width=64, heads=4, head_dim=K, seq_len=32)
REFERENCE = load_file(Path(__file__).parents[1] / "reference" / "rotary.safetensors")


def make(spec: str) -> Encoding:
    parsed = specs.parse(spec)
    return layer_encodings(parsed.name, parsed.arguments, DIMS)[0]


def positions(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def products(encoding: Encoding, q: Tensor, k: Tensor, first: int = 0) -> Tensor:
    """The scaled scores of a window that begins at position `first`."""
    pos = positions(q.shape[2]) + first
    with torch.no_grad():
        q_BHTK, k_BGSK = encoding.rotate(q, k, pos, pos)
    return scaled_product(q_BHTK, k_BGSK)


@pytest.mark.parametrize("spec", ["xpos:scale_base=24,theta=10000", "xpos:scale_base=7,theta=500"])
def test_xpos_scores_are_those_of_x_transformers(spec: str) -> None:
    """Below the diagonal: the scores of later keys grow with the distance, and are never used."""
    actual = products(make(spec), REFERENCE["q"], REFERENCE["k"]) * 4
    torch.testing.assert_close(actual.tril(), REFERENCE[f"{spec} scores"].tril(), rtol=1e-4, atol=1e-5)


def xpos_by_hand(q: np.ndarray, k: np.ndarray, distance: float, base: float, gamma: float, theta: float) -> float:
    score = 0.0
    for m in range(K // 2):
        zeta = (2 * m / K + gamma) / (1 + gamma)
        angle = distance * theta ** (-2 * m / K)
        along = q[2 * m] * k[2 * m] + q[2 * m + 1] * k[2 * m + 1]
        across = q[2 * m] * k[2 * m + 1] - q[2 * m + 1] * k[2 * m]
        score += zeta ** (distance / base) * (along * math.cos(angle) + across * math.sin(angle))
    return score / math.sqrt(K)


@pytest.mark.parametrize(
    ("spec", "base", "gamma", "theta"),
    [("xpos", 32, 0.4, 10_000), ("xpos:scale_base=5", 5, 0.4, 10_000), ("xpos:gamma=2,theta=300", 32, 2, 300)],
)
@pytest.mark.parametrize("first", [0, 1000])
def test_xpos_is_a_function_of_distance(spec: str, base: float, gamma: float, theta: float, first: int) -> None:
    q, k = random(2, 1, 1, 70, K).unbind()
    actual = products(make(spec), q, k, first)[0, 0]
    for i in (0, 1, 30, 69):
        for j in range(i + 1):
            by_hand = xpos_by_hand(q[0, 0, i].numpy(), k[0, 0, j].numpy(), i - j, base, gamma, theta)
            assert actual[i, j].item() == pytest.approx(by_hand, rel=1e-3, abs=2e-4)


def test_xpos_decays_the_fast_pairs_most() -> None:
    """A pair that points where the rotation leaves it has zeta^(r/S) and nothing else."""
    for m, zeta in ((0, 0.4 / 1.4), (4, 0.9 / 1.4), (7, 1.275 / 1.4)):
        x = torch.zeros(1, 1, 33, K)
        x[..., 2 * m] = 1.0
        pos = positions(33)
        q, k = make("xpos").rotate(x, x, pos, pos)
        sizes = q.norm(dim=-1)[0, 0, 32] * k.norm(dim=-1)[0, 0, 0]
        assert sizes.item() == pytest.approx(zeta, rel=1e-5)


def test_xpos_ends_where_float32_does() -> None:
    assert XPos(DIMS).max_length == int(80 * 32 / math.log(3.5))
    assert XPos(DIMS, scale_base=2.5).max_length == 159


@pytest.mark.parametrize("explicit", [True, False], ids=["explicit", "fused"])
def test_xpos_is_exact_to_its_last_position(explicit: bool) -> None:
    """The products of hidden keys reach 1e36 there, and must turn into neither infinity nor nan."""
    encoding = XPos(DIMS, scale_base=4.0)
    length = encoding.max_length
    assert length == 255  # short enough for the explicit path
    q, k, v = random(3, 1, 2, length, K).unbind()
    pos = positions(length)
    hidden = products(encoding, q, k).triu(1)
    assert torch.isfinite(hidden).all()
    assert max(x.abs().max() for x in encoding.rotate(q, k, pos, pos)) < 1e19, "half of the exponents are in each"
    assert hidden.abs().max() > 1e30
    with torch.set_grad_enabled(explicit):
        actual = attend(*encoding.rotate(q, k, pos, pos), v, Scoring(encoding, pos))
    distance = np.arange(length)[:, None] - np.arange(length)
    scores = np.full((2, length, length), -np.inf)
    seen = distance >= 0
    complex_q, complex_k = (x.double().numpy()[0, ..., 0::2] + 1j * x.double().numpy()[0, ..., 1::2] for x in (q, k))
    scores[:, seen] = 0.0
    for m in range(K // 2):
        zeta = (2 * m / K + 0.4) / 1.4
        turn = np.exp(1j * distance[seen] * 10_000 ** (-2 * m / K))
        product = (complex_q[:, :, None, m] * complex_k[:, None, :, m].conj())[:, seen]
        scores[:, seen] += zeta ** (distance[seen] / 4) * (product * turn).real / math.sqrt(K)
    share = np.exp(scores - scores.max(-1, keepdims=True))
    expected = share / share.sum(-1, keepdims=True) @ v[0].double().numpy()
    np.testing.assert_allclose(actual[0].detach().numpy(), expected, atol=1e-5)
