"""RoPE++ against the authors' formula, pair by pair in float64."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, scaled_product
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.encodings.rope_pp import RoPEPlusPlus

B, H, T, K = 2, 6, 13, 8
DIMS = Dims(width=20, heads=H, head_dim=K, seq_len=7)
KINDS = {"second-half": {3, 4, 5}, "every-second": {1, 3, 5}}


def window(kv_heads: int = H) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, H, T, K), torch.randn(B, kv_heads, T, K)


def scores(encoding: RoPE, q: Tensor, k: Tensor, first: float = 0.0) -> Tensor:
    pos = torch.arange(float(T))
    rotated_q, rotated_k = encoding.rotate(q, k, pos + first, pos + first)
    return scaled_product(rotated_q, rotated_k.repeat_interleave(H // k.shape[1], dim=1))


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("imaginary", KINDS)
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_imaginary_heads_take_the_other_part_of_the_product(kv_heads: int, imaginary: str, scale: float) -> None:
    """As in the comment of the authors' code: (q k) sin r - (q x k) cos r, beside (q k) cos r + (q x k) sin r."""
    q, k = window(kv_heads)
    expected = np.zeros((B, H, T, T))
    for b, h, i, j in np.ndindex(B, H, T, T):
        query, key = q[b, h, i].tolist(), k[b, h // (H // kv_heads), j].tolist()
        for m in range(K // 2):
            angle = (i - j) * 10.0 ** (-2 * m / K) * scale
            inner = query[m] * key[m] + query[m + 4] * key[m + 4]
            cross = query[m] * key[m + 4] - query[m + 4] * key[m]
            if h in KINDS[imaginary]:
                expected[b, h, i, j] += inner * math.sin(angle) - cross * math.cos(angle)
            else:
                expected[b, h, i, j] += inner * math.cos(angle) + cross * math.sin(angle)
    encoding = RoPEPlusPlus(DIMS, theta=10.0, imaginary=imaginary).extended(Plan(frequency_scale=(scale,) * 4))
    actual = scores(encoding, q, k).double()
    torch.testing.assert_close(actual, torch.from_numpy(expected) / K**0.5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("imaginary", KINDS)
def test_real_heads_are_rope_and_imaginary_ones_a_quarter_turn_behind(imaginary: str, pairing: str) -> None:
    q, k = window()
    encoding, rope = RoPEPlusPlus(DIMS, imaginary=imaginary, pairing=pairing), RoPE(DIMS, pairing=pairing)
    pos = torch.arange(float(T))
    ours, plain = encoding.rotate(q, k, pos, pos.clone()), rope.rotate(q, k, pos, pos)
    behind = plain[0].clone()
    one, other = behind.chunk(2, dim=-1) if pairing == "half" else (behind[..., ::2], behind[..., 1::2])
    turned = torch.cat if pairing == "half" else lambda parts, dim: torch.stack(parts, dim=dim).flatten(-2)
    behind = turned([other, -one], dim=-1)
    assert torch.equal(ours[1], plain[1])
    for h in range(H):
        wanted = behind if h in KINDS[imaginary] else plain[0]
        torch.testing.assert_close(ours[0][:, h], wanted[:, h], rtol=1e-5, atol=1e-5)


def test_scores_depend_on_distance_and_a_token_makes_nothing_of_itself() -> None:
    q, _ = window()
    encoding = RoPEPlusPlus(DIMS)
    torch.testing.assert_close(scores(encoding, q, q), scores(encoding, q, q, first=50.0), rtol=1e-4, atol=1e-4)
    itself = scores(encoding, q, q).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(itself[:, 3:], torch.zeros_like(itself[:, 3:]), rtol=0, atol=1e-5)
    torch.testing.assert_close(itself[:, :3], q[:, :3].square().sum(dim=-1) / K**0.5)


def test_queries_and_keys_may_be_at_different_positions() -> None:
    q, k = window()
    encoding = RoPEPlusPlus(DIMS)
    pos_T, pos_S = torch.arange(float(T)) + 30.0, torch.arange(float(T)) * 2.5
    both = encoding.rotate(q, k, pos_T, pos_S)
    assert torch.equal(both[0], encoding.rotate(q, k, pos_T, pos_T)[0])
    assert torch.equal(both[1], encoding.rotate(q, k, pos_S, pos_S)[1])


def test_it_is_said_to_rescale() -> None:
    assert RoPEPlusPlus.rescales == {"rotate"}
