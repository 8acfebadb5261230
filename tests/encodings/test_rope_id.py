"""RoPE-ID against our reading of its formula, pair by pair in float64."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, scaled_product
from extrapolate.encodings.none import NoPE
from extrapolate.encodings.rope import RoPE
from extrapolate.encodings.rope_id import RoPEID

B, H, T, K, L = 2, 6, 41, 16, 23
DIMS = Dims(width=20, heads=H, head_dim=K, seq_len=L)
# Wavelengths from 2 pi to L / 2 tokens, in equal ratios, for four of eight pairs.
FREQUENCIES = [2 * math.pi / ((2 * math.pi) ** (1 - m / 3) * 11.5 ** (m / 3)) for m in range(4)] + [0.0] * 4


def window(kv_heads: int = H) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, H, T, K), torch.randn(B, kv_heads, T, K)


def scores(encoding: RoPE, q: Tensor, k: Tensor, first: float = 0.0) -> Tensor:
    pos = torch.arange(float(q.shape[2])) + first
    rotated_q, rotated_k = encoding.rotate(q, k, pos, pos.clone())
    return scaled_product(rotated_q, rotated_k.repeat_interleave(H // k.shape[1], dim=1))


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("temperature", [0.1, 0.3])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_id_is_its_formula(kv_heads: int, temperature: float, pairing: str) -> None:
    q, k = (x[:, :, 20:27] for x in window(kv_heads))  # around L
    pairs = [(m, m + 8) if pairing == "half" else (2 * m, 2 * m + 1) for m in range(8)]
    expected = np.zeros((B, H, 7, 7))
    for b, h, i, j in np.ndindex(*expected.shape):
        query, key = q[b, h, i].tolist(), k[b, h // (H // kv_heads), j].tolist()
        for (one, other), w in zip(pairs, FREQUENCIES, strict=True):
            product = complex(query[one], query[other]) * complex(key[one], -key[other])
            expected[b, h, i, j] += (product * complex(math.cos((i - j) * w), math.sin((i - j) * w))).real
        text = 20 + i + 1
        expected[b, h, i, j] *= (1 + temperature * math.log(max(1.0, text / L))) ** 2 / K**0.5
    encoding = RoPEID(DIMS, temperature=temperature, pairing=pairing)
    actual = scores(encoding, q, k, first=20.0).double()
    torch.testing.assert_close(actual, torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("seq_len", "fast", "slow"),
    [
        (8, 4.0, 4.0),
        (64, 2 * math.pi, 32.0),
        (804, 2 * math.pi, 402.0),
        (1024, 8.0, 512.0),
        (4096, 32.0, 2048.0),
        (8192, 32.0, 4096.0),
    ],
)
def test_defaults_are_those_of_the_docstring(seq_len: int, fast: float, slow: float) -> None:
    """The ends are the digest's from 4096 tokens on."""
    encoding = RoPEID(dataclasses.replace(DIMS, head_dim=32, seq_len=seq_len))
    assert encoding.arguments() == {
        "kept": 8, "fast": pytest.approx(fast, abs=1e-12), "slow": slow, "temperature": 0.1, "length": seq_len,
        "pairing": "half",
    }  # fmt: skip
    frequencies = encoding.frequencies(torch.device("cpu"))
    assert frequencies[0].item() == pytest.approx(2 * math.pi / fast)
    assert frequencies[7].item() == pytest.approx(4 * math.pi / seq_len)
    assert (frequencies[8:] == 0).all()
    assert frequencies.dtype == torch.float32


def test_no_pairs_and_no_temperature_are_nope() -> None:
    q, k = window()
    encoding = RoPEID(DIMS, kept=0, temperature=0.0)
    torch.testing.assert_close(scores(encoding, q, k), scores(NoPE(DIMS), q, k))


def test_with_its_frequencies_it_is_rope() -> None:
    """All pairs, from one turn in 2 pi tokens to the slowest of a base of 50."""
    q, k = window()
    slow = 2 * math.pi * 50 ** (7 / 8)
    encoding = RoPEID(DIMS, kept=8, fast=2 * math.pi, slow=slow, temperature=0.0)
    torch.testing.assert_close(scores(encoding, q, k), scores(RoPE(DIMS, theta=50.0), q, k), rtol=1e-4, atol=1e-5)


def test_the_temperature_begins_after_l_and_leaves_keys_alone() -> None:
    q, k = window()
    pos = torch.arange(float(T))
    warm, plain = RoPEID(DIMS).rotate(q, k, pos, pos), RoPEID(DIMS, temperature=0.0).rotate(q, k, pos, pos)
    assert torch.equal(warm[1], plain[1])
    assert torch.equal(warm[0][:, :, :L], plain[0][:, :, :L])
    ratio = warm[0].norm(dim=-1) / plain[0].norm(dim=-1)
    assert (ratio[:, :, L:].diff(dim=-1) > 0).all()
    assert ratio[0, 0, -1].item() == pytest.approx((1 + 0.1 * math.log(T / L)) ** 2, rel=1e-5)


def test_queries_and_keys_may_be_at_different_positions() -> None:
    q, k = window()
    encoding = RoPEID(DIMS)
    pos_T, pos_S = torch.arange(float(T)) + 30.0, torch.arange(float(T)) * 2.5
    both = encoding.rotate(q, k, pos_T, pos_S)
    assert torch.equal(both[0], encoding.rotate(q, k, pos_T, pos_T)[0])
    assert torch.equal(both[1], encoding.rotate(q, k, pos_S, pos_S)[1])
