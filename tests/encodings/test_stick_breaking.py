"""Stick-breaking against its formula, key by key in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding
from extrapolate.encodings.stick_breaking import StickBreaking
from extrapolate.model import attention
from extrapolate.model.attention import Maps, Scoring, attend

B, H, T, K = 2, 3, 13, 5
DIMS = Dims(width=15, heads=H, head_dim=K, seq_len=7)


def window(length: int = T, scale: float = 2.0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, H, length, K) for _ in range(3))
    return scale * q, k, v


def weights_of(encoding: Encoding, q: Tensor, k: Tensor) -> Tensor:
    """[B, H, T, T], as attention computes them."""
    maps = Maps(q.shape[2])
    with torch.no_grad():
        attend(q, k, torch.zeros_like(k), Scoring(encoding, torch.arange(float(q.shape[2])), observer=maps))
    return maps.weights[0]


def by_hand(q: Tensor, k: Tensor, remainder: str) -> Tensor:
    """The paper's product, written out."""
    q, k = q.double(), k.double()
    weights = torch.zeros(*q.shape[:3], q.shape[2], dtype=torch.float64)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                left = 1.0
                for j in range(i - 1, -1, -1):
                    taken = torch.sigmoid(q[b, h, i] @ k[b, h, j] / q.shape[3] ** 0.5).item()
                    weights[b, h, i, j] = taken * left
                    left *= 1 - taken
                if remainder == "current":
                    weights[b, h, i, i] = left
    return weights


@pytest.mark.parametrize("remainder", ["dropped", "current"])
@pytest.mark.parametrize("chunk", [128, 5])
def test_weights_are_those_of_the_formula(remainder: Any, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", chunk)
    q, k, _ = window()
    own = weights_of(StickBreaking(DIMS, remainder=remainder), q, k)
    torch.testing.assert_close(own.double(), by_hand(q, k, remainder), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("remainder", ["dropped", "current"])
def test_gradients_are_those_of_the_formula(remainder: Any) -> None:
    q, k, v = (x[:1, :1, :6].double().requires_grad_() for x in window())
    scores = (q @ k.mT / K**0.5).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)
    encoding = StickBreaking(DIMS, remainder=remainder)
    context = attention.chunk_context(encoding, torch.arange(6.0), torch.arange(6.0), None, 0, 6)
    (encoding.weights(scores, context) @ v).square().sum().backward()

    def loss(q: Tensor) -> float:
        return (by_hand(q, k.detach(), remainder) @ v.detach()).square().sum().item()

    for place in ((0, 0, 0, 0), (0, 0, 3, 1), (0, 0, 5, 4)):
        moved = torch.zeros_like(q)
        moved[place] = 1e-6
        slope = (loss(q.detach() + moved) - loss(q.detach() - moved)) / 2e-6
        assert q.grad[place].item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_nothing_is_left_out_if_the_current_token_takes_the_remainder() -> None:
    q, k, _ = window(length=40)
    given = weights_of(StickBreaking(DIMS, remainder="current"), q, k)
    torch.testing.assert_close(given.sum(dim=-1), torch.ones(B, H, 40))
    dropped = weights_of(StickBreaking(DIMS), q, k)
    assert (dropped.sum(dim=-1) < 1 + 1e-6).all()
    assert (dropped.diagonal(dim1=-2, dim2=-1) == 0).all()
    assert torch.equal(given.tril(-1), dropped)


def test_a_near_key_that_takes_all_leaves_nothing_however_large_the_scores() -> None:
    """A product of probabilities would be 0 or nan; a difference of long sums would be off."""
    q = torch.full((1, 1, 600, K), 40.0)
    k = torch.full((1, 1, 600, K), -40.0)
    k[:, :, 300] = 40.0
    weights = weights_of(StickBreaking(DIMS), q, k)[0, 0]
    assert weights.isfinite().all()
    torch.testing.assert_close(weights[301:, 300], torch.ones(299))
    assert weights[301:, :300].max() == 0


def test_far_keys_do_not_dilute_near_ones() -> None:
    q, k, _ = window(length=60)
    long, short = (weights_of(StickBreaking(DIMS), q[:, :, start:], k[:, :, start:]) for start in (0, 30))
    torch.testing.assert_close(long[:, :, 30:, 30:], short)
