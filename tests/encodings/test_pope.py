"""PoPE against x-transformers and its paper's formula, computed channel by channel in float64."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding, scaled_product
from extrapolate.encodings.pope import PoPE
from extrapolate.model.attention import Scoring, attend

K = 16
DIMS = Dims(width=64, heads=4, head_dim=K, seq_len=32)
REFERENCE = load_file(Path(__file__).parents[1] / "reference" / "rotary.safetensors")


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


def weights(encoding: Encoding, q: Tensor, k: Tensor) -> Tensor:
    """What each query makes of each key, for windows of at most K tokens: the values are the unit vectors."""
    length = q.shape[2]
    pos = positions(length)
    unit = torch.eye(length, q.shape[3]).expand(*k.shape[:2], -1, -1)
    with torch.no_grad():
        return attend(*encoding.rotate(q, k, pos, pos), unit, Scoring(encoding, pos))[..., :length]


def pope_by_hand(q: Tensor, k: Tensor, distance: int, delta: Sequence[float], theta: float) -> float:
    score = 0.0
    for c in range(K):
        lengths = math.log1p(math.exp(q[c].item())) * math.log1p(math.exp(k[c].item()))
        score += lengths * math.cos(distance * theta ** (-c / K) - delta[c])
    return score / math.sqrt(K)


def pope_with(delta: Tensor, theta: float = 10_000.0) -> PoPE:
    pope = PoPE(dataclasses.replace(DIMS, heads=len(delta)), theta=theta)
    with torch.no_grad():
        pope.delta_HK.copy_(delta)
    return pope


@pytest.mark.parametrize("name", ["zero", "inside", "outside"])
def test_pope_scores_are_those_of_x_transformers(name: str) -> None:
    actual = products(pope_with(REFERENCE[f"pope {name} delta"]), REFERENCE["q"], REFERENCE["k"])
    torch.testing.assert_close(actual, REFERENCE[f"pope {name} scores"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("theta", [10_000.0, 70.0])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_pope_is_a_sum_of_cosines(kv_heads: int, theta: float) -> None:
    """A query head's delta is its own where keys are shared, and the scores are scaled as for K channels."""
    delta = -6 * torch.rand(4, K, generator=torch.Generator().manual_seed(2))
    q, k = random(1, 4, 12, K), random(1, kv_heads, 12, K)
    pope = pope_with(delta, theta)
    scores = np.full((4, 12, 12), -np.inf)
    for h in range(4):
        for i in range(12):
            for j in range(i + 1):
                key = k[0, h // (4 // kv_heads), j]
                scores[h, i, j] = pope_by_hand(q[0, h, i], key, i - j, delta[h].tolist(), theta)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(weights(pope, q, k)[0].numpy(), expected, rtol=1e-4, atol=1e-6)


def test_pope_keeps_delta_in_its_range_and_trains_it() -> None:
    q, k = random(2, 1, 4, 5, K).unbind()
    outside, edge = (torch.full((4, K), value) for value in (-9.0, -2 * math.pi))
    torch.testing.assert_close(products(pope_with(outside), q, k), products(pope_with(edge), q, k))
    torch.testing.assert_close(products(pope_with(-outside), q, k), products(pope_with(0 * edge), q, k))
    pope = PoPE(DIMS)
    assert (pope.delta_HK == 0).all()
    rotated_q, rotated_k = pope.rotate(q, k, positions(5), positions(5))
    (rotated_q @ rotated_k.mT)[..., -1, 0].sum().backward()
    assert pope.delta_HK.grad is not None
    assert (pope.delta_HK.grad != 0).all()


def test_pope_delta_may_start_anywhere() -> None:
    torch.manual_seed(0)
    delta = PoPE(Dims(width=1024, heads=16, head_dim=64, seq_len=32), delta="uniform").delta_HK.detach()
    assert -2 * math.pi <= delta.min() < -6
    assert -0.2 < delta.max() <= 0
    assert delta.mean().item() == pytest.approx(-math.pi, abs=0.2)


def test_pope_content_moves_no_angle() -> None:
    """The distance at which a channel's score is highest is the same whatever the queries and keys are."""
    for seed in range(3):
        q, k = torch.randn(2, 1, 4, 1, 1, generator=torch.Generator().manual_seed(seed)).unbind()
        x = [torch.full((1, 4, 30, K), -50.0) for _ in "qk"]
        for tensor, value in zip(x, (q, k), strict=True):
            tensor[..., 4:5] = 3 * value
        scores = products(pope_with(torch.full((4, K), -math.pi)), *x)
        assert (scores[..., 0].argmax(dim=-1) == 29).all()  # of 0..29, 29 / 10 is nearest to pi
        assert (scores[..., 0].argmin(dim=-1) == 0).all()
