"""Retention against its paper's sum, pair by pair in float64."""

import math

import pytest
import torch
from torch import Tensor

from extrapolate.encodings import retention
from extrapolate.encodings.base import Dims
from extrapolate.encodings.retention import Retention

B, H, T, K, D = 2, 4, 13, 6, 10
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=7)


def made() -> Retention:
    torch.manual_seed(0)
    return Retention(DIMS, theta=50.0)


def mixed(encoding: Retention, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
    pos, state = torch.arange(float(q.shape[2])), encoding.prepare(x)
    return encoding.mix(*encoding.rotate(q, k, pos, pos, state), v, state).detach()


def inputs(length: int = T, kv_heads: int = H) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    q, k, v = (torch.randn(B, heads, length, K) for heads in (H, kv_heads, kv_heads))
    return q, k, v, torch.randn(B, length, D)


def turned(x: Tensor, place: int) -> Tensor:
    """x in float64, pairs (m, m + K/2) turned."""
    x, half = x.double(), K // 2
    pairs = torch.complex(x[:half], x[half:])
    angle = place * 50.0 ** (-2 * torch.arange(half).double() / K)
    pairs = pairs * torch.polar(torch.ones(half).double(), angle)
    return torch.cat([pairs.real, pairs.imag])


def by_hand(q: Tensor, k: Tensor, v: Tensor, x: Tensor, gate: Tensor) -> Tensor:
    """One pair at a time."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            g, gamma = h * k.shape[1] // H, 1 - 2 ** (-5 - h)
            for i in range(q.shape[2]):
                for j in range(i + 1):
                    score = turned(q[b, h, i], i) @ turned(k[b, g, j], j) / math.sqrt(K)
                    out[b, h, i] += score * gamma ** (i - j) * v[b, g, j]
                size = (out[b, h, i].square().mean() + 1e-5).sqrt()
                opened = gate[h * K : (h + 1) * K].double() @ x[b, i].double()
                out[b, h, i] *= opened * opened.sigmoid() / size
    return out


@pytest.mark.parametrize("block", [64, 4, 13, 1])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_it_is_the_papers_sum(block: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BLOCK", block)
    encoding, given = made(), inputs(kv_heads=kv_heads)
    expected = by_hand(*given, encoding.gate.weight.detach())
    torch.testing.assert_close(mixed(encoding, *given).double(), expected, rtol=1e-4, atol=1e-5)


def test_far_tokens_fade_over_many_blocks() -> None:
    """The state between blocks carries exactly what the sum over all pairs has, at 5 blocks as at 1."""
    q = k = torch.ones(1, 1, 320, 1)
    v = torch.zeros(1, 1, 320, 1)
    v[:, :, 3] = 1.0
    log_decay = torch.tensor([math.log(0.97)])
    faded = retention.faded_sums(q, k, v, log_decay)[0, 0, :, 0]
    expected = 0.97 ** (torch.arange(320.0) - 3)
    expected[:3] = 0
    torch.testing.assert_close(faded, expected)


def test_it_knows_distances_alone() -> None:
    encoding, (q, k, v, x) = made(), inputs()
    pos, state = torch.arange(float(T)), encoding.prepare(x)
    one, other = (encoding.mix(*encoding.rotate(q, k, p, p, state), v, state) for p in (pos, pos + 40))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_its_size_does_not_depend_on_that_of_queries_and_keys() -> None:
    encoding, (q, k, v, x) = made(), inputs()
    larger, own = (mixed(encoding, factor * q, factor * k, v, x) for factor in (10, 1))
    torch.testing.assert_close(larger[:, :, 1:], own[:, :, 1:], rtol=1e-3, atol=1e-3)
