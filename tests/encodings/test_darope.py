"""DaRoPE against the paper's formula, token by token and pair by pair in float64."""

import cmath
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, scaled_product
from extrapolate.encodings.darope import DaRoPE
from extrapolate.encodings.none import NoPE
from extrapolate.encodings.rope import RoPE

B, H, T, K, D, L = 2, 6, 13, 8, 20, 7
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=L)
POS = torch.arange(float(T))


def moved(**arguments: object) -> DaRoPE:
    """One whose alpha are not where they start, nor equal."""
    torch.manual_seed(0)
    encoding = DaRoPE(DIMS, **arguments)
    with torch.no_grad():
        encoding.alpha_H.add_(torch.randn(H))
    return encoding


def window(kv_heads: int = H) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, T, D), torch.randn(B, H, T, K), torch.randn(B, kv_heads, T, K)


def scores(encoding: RoPE, x: Tensor, q: Tensor, k: Tensor, pos: Tensor = POS) -> Tensor:
    with torch.no_grad():
        rotated_q, rotated_k = encoding.rotate(q, k, pos, pos.clone(), encoding.prepare(x))
    return scaled_product(rotated_q, rotated_k.repeat_interleave(H // k.shape[1], dim=1))


def by_hand(
    encoding: DaRoPE, theta: float, length: int, x: Tensor, q: Tensor, k: Tensor, pairs: list[tuple[int, int]]
) -> Tensor:
    """The scaled scores: a pair of channels is a complex number."""
    u, alpha = encoding.content.weight.detach().double().numpy(), encoding.alpha_H.detach().double().numpy()
    x, q, k = (tensor.double().numpy() for tensor in (x, q, k))
    group, found = H // k.shape[1], np.zeros((B, H, T, T))
    for b, h in np.ndindex(B, H):
        first = h // group * group  # the head whose u and alpha the group uses
        places = []
        for token in range(T):
            share = min(max((token + 0.5) / length, 1e-6), 1 - 1e-6)
            logit = u[first] @ x[b, token] + alpha[first] * math.log(share / (1 - share))
            places.append(length / (1 + math.exp(-logit)))
        for i, j in np.ndindex(T, T):
            for m, (one, other) in enumerate(pairs):
                w = theta ** (-2 * m / K)
                angle = (i - j) * w if w >= 2 * math.pi / length else (places[i] - places[j]) * w
                query, key = (complex(y[one], y[other]) for y in (q[b, h, i], k[b, h // group, j]))
                found[b, h, i, j] += (query * key.conjugate() * cmath.exp(1j * angle)).real / K**0.5
    return torch.from_numpy(found)


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize(("theta", "length", "fast"), [(10_000.0, None, 1), (1.2, None, 3), (1.2, 5, 0), (3.0, 11, 3)])
def test_darope_is_the_formula_of_the_paper(kv_heads: int, theta: float, length: int | None, fast: int) -> None:
    """With a theta of 1.2, three of four pairs complete a turn within 7 tokens, and none within 5."""
    x, q, k = window(kv_heads)
    encoding = moved(theta=theta, length=length)
    assert encoding.kept == fast
    expected = by_hand(encoding, theta, length or L, x, q, k, [(m, m + K // 2) for m in range(K // 2)])
    torch.testing.assert_close(scores(encoding, x, q, k).double(), expected, rtol=1e-5, atol=1e-5)


def test_its_pairs_may_be_interleaved() -> None:
    x, q, k = window()
    encoding = moved(pairing="interleaved", theta=3.0)
    expected = by_hand(encoding, 3.0, L, x, q, k, [(2 * m, 2 * m + 1) for m in range(K // 2)])
    torch.testing.assert_close(scores(encoding, x, q, k).double(), expected, rtol=1e-5, atol=1e-5)


def neutral(**arguments: object) -> DaRoPE:
    return DaRoPE(DIMS, alpha=1.0, spread=0.0, **arguments)


def test_without_content_it_is_rope_within_l() -> None:
    """Whatever the tokens are, and up to half a token that both sides gain."""
    x, q, k = (tensor[..., :L, :] for tensor in window())
    expected = scores(RoPE(DIMS), x, q, k, POS[:L])
    torch.testing.assert_close(scores(neutral(), x, q, k, POS[:L]), expected, rtol=1e-4, atol=1e-5)


def test_beyond_l_slow_pairs_see_no_distance_and_fast_ones_do() -> None:
    x, q, k = window()
    far = slice(L, None)
    same = [tensor[..., :1, :].expand_as(tensor) for tensor in (q, k)]
    slow = scores(neutral(kept=0), x, *same)[..., far, far]
    torch.testing.assert_close(slow, slow[..., :1, :1].expand_as(slow), rtol=1e-4, atol=1e-5)
    fast = scores(neutral(kept=1), x, *same)[..., far, far]
    assert fast[0, 0, :, 0].unique().numel() == T - L
    every = scores(neutral(kept=K // 2), x, q, k)
    torch.testing.assert_close(every, scores(RoPE(DIMS), x, q, k))


def test_with_no_prior_and_no_content_slow_pairs_are_not_turned() -> None:
    x, q, k = window()
    encoding = DaRoPE(DIMS, alpha=0.0, spread=0.0, kept=0)
    torch.testing.assert_close(scores(encoding, x, q, k), scores(NoPE(DIMS), x, q, k), rtol=1e-4, atol=1e-5)


def test_a_token_moves_itself_alone() -> None:
    x, q, k = window()
    other = x.clone()
    other[:, 5] += 1.0
    encoding = moved()
    apart = (scores(encoding, x, q, k) - scores(encoding, other, q, k)).abs() > 1e-5
    assert apart[..., 5, :5].any()
    assert apart[..., 6:, 5].any()
    apart[..., 5, :] = apart[..., :, 5] = False
    assert not apart.any()


def test_initial_values_are_those_of_the_docstring() -> None:
    torch.manual_seed(0)
    large = DaRoPE(Dims(width=512, heads=16, head_dim=32, seq_len=64))
    assert large.content.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert (large.alpha_H == 0.5).all()
