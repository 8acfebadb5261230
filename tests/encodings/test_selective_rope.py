"""Selective RoPE against the authors' formula, token by token and pair by pair in float64."""

import cmath

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, scaled_product
from extrapolate.encodings.none import NoPE
from extrapolate.encodings.rope import RoPE
from extrapolate.encodings.selective_rope import SelectiveRoPE

B, H, T, K, D, RANK = 2, 6, 13, 8, 18, 5
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=7)


def moved(**arguments: object) -> SelectiveRoPE:
    """One that turns by about a radian a token."""
    torch.manual_seed(0)
    encoding = SelectiveRoPE(DIMS, rank=RANK, theta=10.0, **arguments)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return encoding


def window(kv_heads: int = H) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return 3 * torch.randn(B, T, D), torch.randn(B, H, T, K), torch.randn(B, kv_heads, T, K)


def scores(encoding: RoPE, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    pos = torch.arange(float(x.shape[1]))
    with torch.no_grad():
        rotated_q, rotated_k = encoding.rotate(q, k, pos, pos, encoding.prepare(x))
    return scaled_product(rotated_q, rotated_k.repeat_interleave(H // k.shape[1], dim=1))


def by_hand(encoding: SelectiveRoPE, x: Tensor, q: Tensor, k: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    """The scaled scores: a pair of channels is a complex number."""
    weights = {name: parameter.detach().double().numpy() for name, parameter in encoding.named_parameters()}
    x, q, k = (tensor.double().numpy() for tensor in (x, q, k))
    group, found = H // k.shape[1], np.zeros((B, H, T, T))
    for b in range(B):
        y = x[b].reshape(T, H, D // H).copy()
        for t, h in np.ndindex(T, H):
            y[t, h] /= np.sqrt((y[t, h] ** 2).sum() + 1e-6)
        y = y.reshape(T, D)
        own = [weights["up.weight"] @ (weights["down.weight"] @ y[t]) for t in range(T)]
        for h in range(H):
            first = h // group * group  # the head whose angles the group uses
            angle, total = np.zeros((T, K // 2)), np.zeros(K // 2)
            for t in range(T):
                for m in range(K // 2):
                    channel = first * (K // 2) + m
                    phi = sum(weights["tap_UC"][u, channel] * own[t - u][channel] for u in range(min(4, t + 1)))
                    if encoding.gate:
                        logit = weights["gating.weight"][first] @ y[t] + weights["gating.bias"][first]
                        phi /= 1 + np.exp(-logit)
                    total[m] += phi
                    angle[t, m] = total[m] * 10.0 ** (-2 * m / K)
            for i, j in np.ndindex(T, T):
                for m, (one, other) in enumerate(pairs):
                    query, key = (complex(z[one], z[other]) for z in (q[b, h, i], k[b, h // group, j]))
                    turned = query * key.conjugate() * cmath.exp(1j * (angle[i, m] - angle[j, m]))
                    found[b, h, i, j] += turned.real / K**0.5
    return torch.from_numpy(found)


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("arguments", [{}, {"gate": True}, {"form": "fixed", "gate": True}], ids=str)
def test_selective_rope_is_the_authors_formula(kv_heads: int, arguments: dict[str, object]) -> None:
    x, q, k = window(kv_heads)
    encoding = moved(**arguments)
    expected = by_hand(encoding, x, q, k, [(m, m + K // 2) for m in range(K // 2)])
    torch.testing.assert_close(scores(encoding, x, q, k).double(), expected, rtol=1e-5, atol=2e-5)


def test_its_pairs_may_be_interleaved() -> None:
    x, q, k = window()
    encoding = moved(pairing="interleaved")
    expected = by_hand(encoding, x, q, k, [(2 * m, 2 * m + 1) for m in range(K // 2)])
    torch.testing.assert_close(scores(encoding, x, q, k).double(), expected, rtol=1e-5, atol=2e-5)


def test_with_an_angle_of_one_for_every_token_it_is_rope() -> None:
    x, q, k = window()
    encoding = SelectiveRoPE(DIMS, rank=1, theta=10.0)
    with torch.no_grad():
        encoding.down.weight.zero_()[0, 0] = 1.0  # reads one channel, which is 1 in every token
        encoding.up.weight.fill_(1.0)
        encoding.tap_UC.zero_()[0] = 1.0
    x = torch.zeros_like(x)
    x[..., 0] = 100.0
    torch.testing.assert_close(scores(encoding, x, q, k), scores(RoPE(DIMS, theta=10.0), x, q, k), rtol=1e-5, atol=1e-5)


def test_weights_of_zero_and_a_closed_gate_turn_nothing() -> None:
    x, q, k = window()
    plain = scores(NoPE(DIMS), x, q, k)
    closed, still = moved(gate=True), moved()
    assert not torch.allclose(scores(still, x, q, k), plain, atol=0.1)
    with torch.no_grad():
        closed.gating.bias.fill_(-100.0)
        still.tap_UC.zero_()
    torch.testing.assert_close(scores(closed, x, q, k), plain)
    torch.testing.assert_close(scores(still, x, q, k), plain)


def test_the_size_of_a_token_does_not_matter() -> None:
    x, q, k = window()
    encoding = moved(gate=True)
    torch.testing.assert_close(scores(encoding, 5 * x, q, k), scores(encoding, x, q, k), rtol=1e-4, atol=1e-4)


def test_fixed_weights_are_not_trained_and_turn_by_about_a_radian() -> None:
    torch.manual_seed(0)
    dims = Dims(width=128, heads=4, head_dim=32, seq_len=64)
    fixed, learned = SelectiveRoPE(dims, form="fixed", gate=True), SelectiveRoPE(dims)
    assert [name for name, p in fixed.named_parameters() if p.requires_grad] == ["gating.weight", "gating.bias"]
    assert all(p.requires_grad for p in learned.parameters())
    x = torch.randn(8, 200, 128)
    for encoding, size in ((SelectiveRoPE(dims, form="fixed"), 1.0), (learned, 0.02**3 * (4 * 16 * 4) ** 0.5)):
        with torch.no_grad():
            fastest = encoding.prepare(x)[..., 0].diff(dim=2)
        assert fastest.square().mean().sqrt().item() == pytest.approx(size, rel=0.3)
    assert fixed.caption == "Selective RoPE: a fixed phi is our reading"
    assert not learned.caption


def test_rank_is_that_of_the_weights() -> None:
    assert SelectiveRoPE(DIMS).down.weight.shape == (16, D)
