"""Encodings against independent implementations, and their papers' identities."""

import math

import numpy as np
import pytest
import torch

from extrapolate.encodings.alibi import slopes
from extrapolate.encodings.base import Dims, build, encodings
from extrapolate.encodings.expe import ExPE
from extrapolate.encodings.exqpe import ExQPE
from extrapolate.encodings.learned import Learned
from extrapolate.encodings.rope import RoPE
from extrapolate.encodings.sinusoidal import Sinusoidal
from extrapolate.extensions.base import Plan

DIMS = Dims(width=64, heads=4, head_dim=16, seq_len=32)


def positions(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32)


@pytest.mark.parametrize("theta", [100.0, 10_000.0, 500_000.0])
def test_rope_half_is_transformers_rope(theta: float) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    q, k = torch.randn(2, 3, 4, 50, 16).unbind()
    cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(50)[None])
    expected = apply_rotary_pos_emb(q, k, cos, sin)
    actual = RoPE(DIMS, theta=theta).rotate(q, k, positions(50), positions(50))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_is_multiplication_by_complex_numbers(pairing: str) -> None:
    """The paper's own form: each pair is a complex number, turned by exp(i n w)."""
    x = np.random.default_rng(0).normal(size=(7, 16))
    w = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
    pairs = x[:, :8] + 1j * x[:, 8:] if pairing == "half" else x[:, 0::2] + 1j * x[:, 1::2]
    turned = pairs * np.exp(1j * np.arange(7)[:, None] * w)
    expected = np.empty_like(x)
    if pairing == "half":
        expected[:, :8], expected[:, 8:] = turned.real, turned.imag
    else:
        expected[:, 0::2], expected[:, 1::2] = turned.real, turned.imag
    q = torch.tensor(x, dtype=torch.float32)[None, None]
    actual, _ = RoPE(DIMS, pairing=pairing).rotate(q, q, positions(7), positions(7))
    np.testing.assert_allclose(actual[0, 0].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_scores_depend_on_distance_only(pairing: str) -> None:
    rope = RoPE(DIMS, pairing=pairing)
    q, k = torch.randn(2, 1, 1, 9, 16).unbind()
    near_q, near_k = rope.rotate(q, k, positions(9), positions(9))
    far_q, far_k = rope.rotate(q, k, positions(9) + 100, positions(9) + 100)
    torch.testing.assert_close(near_q @ near_k.mT, far_q @ far_k.mT, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(near_q @ near_k.mT, q @ k.mT, atol=1e-1)


def test_rope_leaves_position_zero_and_norms_alone() -> None:
    q = torch.randn(1, 2, 11, 16)
    rotated, _ = RoPE(DIMS).rotate(q, q, positions(11), positions(11))
    assert torch.equal(rotated[:, :, 0], q[:, :, 0])
    torch.testing.assert_close(rotated.norm(dim=-1), q.norm(dim=-1))


def test_sinusoidal_is_the_papers_table() -> None:
    table = Sinusoidal(DIMS).values(positions(40)).double().numpy()
    for i in (0, 1, 17, 39):
        for m in (0, 3, 31):
            angle = i / 10_000 ** (2 * m / 64)
            assert table[i, 2 * m] == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[i, 2 * m + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_sinusoidal_is_transformers_table() -> None:
    from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

    expected = torch.empty(40, 64)
    create_sinusoidal_embeddings(40, 64, expected)
    torch.testing.assert_close(Sinusoidal(DIMS).values(positions(40)), expected, rtol=0, atol=1e-5)


def test_a_shift_of_the_sinusoid_is_a_rotation() -> None:
    """PE(i + k) is PE(i) turned, pair by pair, by an angle that depends on k alone."""
    table = Sinusoidal(DIMS).values(positions(60)).unflatten(-1, (-1, 2))
    angle = 7 * 10_000.0 ** (-torch.arange(0, 64, 2) / 64)
    sine, cosine = table[:50].unbind(-1)
    shifted = torch.stack(
        [sine * angle.cos() + cosine * angle.sin(), cosine * angle.cos() - sine * angle.sin()], dim=-1
    )
    torch.testing.assert_close(table[7:57], shifted, rtol=0, atol=1e-5)


def test_sinusoidal_scales_the_embedding_by_the_root_of_the_width() -> None:
    x = torch.randn(2, 5, 64)
    added = Sinusoidal(DIMS).embed(x, positions(5)) - 8.0 * x
    torch.testing.assert_close(added, Sinusoidal(DIMS).values(positions(5)).expand(2, -1, -1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20])
def test_alibi_slopes_are_blooms(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    bloom = build_alibi_tensor(torch.ones(1, 3), heads, torch.float32).view(heads, 3)
    torch.testing.assert_close(torch.tensor(slopes(heads)), bloom[:, 1], rtol=1e-6, atol=0)


def test_alibi_slopes_of_twelve_heads_by_hand() -> None:
    assert slopes(12) == pytest.approx([2.0**-h for h in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])


def test_alibi_bias_is_minus_slope_times_distance() -> None:
    bias = build("alibi", {}, DIMS)[0].bias(positions(6)[4:], positions(6))
    assert bias is not None
    for h, slope in enumerate([1 / 4, 1 / 16, 1 / 64, 1 / 256]):
        for t, i in enumerate((4, 5)):
            for j in range(i + 1):
                assert bias[h, t, j].item() == pytest.approx(-slope * (i - j))


def test_learned_adds_its_own_row() -> None:
    learned = Learned(DIMS)
    x = torch.randn(2, 32, 64)
    added = learned.embed(x, positions(32)) - x
    torch.testing.assert_close(added, learned.table_LD.expand(2, -1, -1), rtol=0, atol=1e-5)
    assert learned.max_length == 32
    assert learned.table_LD.std().item() == pytest.approx(0.02, rel=0.1)


def expe_by_hand(n: int, c: int) -> float:
    return -1 + (2 / 32) * n + (2 / 32) * c


def exqpe_by_hand(n: int, c: int) -> float:
    """Starting from token 0, one channel at a time takes a step of l times ExPE's: first the last channel."""
    values = [-1 + (2 / 32) * channel for channel in range(8)]
    for token in range(1, n + 1):
        values[(8 - token) % 8] += 8 * (2 / 32)
    return values[c]


@pytest.mark.parametrize(("cls", "by_hand"), [(ExPE, expe_by_hand), (ExQPE, exqpe_by_hand)])
def test_expe_values(cls: type[ExPE], by_hand) -> None:
    values = cls(DIMS).values(positions(70))
    assert values.shape == (70, 8)
    for n in (0, 1, 2, 7, 8, 9, 31, 69):
        assert values[n].tolist() == pytest.approx([by_hand(n, c) for c in range(8)], abs=1e-5)


def test_exqpe_moves_one_channel_at_a_time() -> None:
    moved = (ExQPE(DIMS).values(positions(100)).diff(dim=0).abs() > 1e-6).sum(dim=1)
    assert set(moved.tolist()) == {1}


@pytest.mark.parametrize("cls", [ExPE, ExQPE])
def test_expe_overrides_what_queries_and_keys_read_and_nothing_else(cls: type[ExPE]) -> None:
    encoding = cls(DIMS, size=10)
    x = torch.randn(2, 5, 64)
    read, values_read = encoding.attention_input(x, positions(5))
    assert values_read is x
    assert torch.equal(read[..., 10:], x[..., 10:])
    assert torch.equal(read[..., :10], encoding.values(positions(5)).expand(2, -1, -1))


def test_expe_without_channels_is_nope() -> None:
    x = torch.randn(2, 5, 64)
    read, _ = ExPE(DIMS, size=0).attention_input(x, positions(5))
    assert torch.equal(read, x)


def test_both_readings_of_scaled_by_half() -> None:
    """Positions halved keep the start; values halved do not."""
    encoding = ExPE(DIMS)
    x = torch.randn(1, 9, 64)
    halved_positions, _ = encoding.attention_input(x, positions(9) / 2)
    halved_values, _ = encoding.extended(Plan(value_scale=0.5)).attention_input(x, positions(9))
    assert halved_positions[0, 4, 0].item() == pytest.approx(-1 + 2 * 2 / 32)
    assert halved_values[0, 4, 0].item() == pytest.approx((-1 + 4 * 2 / 32) / 2)
    assert encoding.value_scale == 1.0, "the encoding itself is left as it was"


@pytest.mark.parametrize(
    ("name", "arguments", "label"),
    [
        ("rope", {}, "RoPE"),
        ("rope", {"theta": "500000"}, "RoPE(theta=500000)"),
        ("expe", {"size": "16", "start": "-1"}, "ExPE(size=16)"),
        ("none", {}, "NoPE"),
    ],
)
def test_labels_show_what_is_not_default(name: str, arguments: dict[str, str], label: str) -> None:
    encoding = build(name, arguments, DIMS)[0]
    assert encodings[name].label(encoding.arguments(), DIMS) == label


@pytest.mark.parametrize(
    ("name", "arguments", "dims", "message"),
    [
        ("rope", {"theta": "-1"}, DIMS, "theta must be positive"),
        ("rope", {}, Dims(width=12, heads=4, head_dim=3, seq_len=8), "even head size"),
        ("sinusoidal", {}, Dims(width=9, heads=1, head_dim=9, seq_len=8), "even width"),
        ("sinusoidal", {"theta": "0"}, DIMS, "theta must be positive"),
        ("expe", {"size": "65"}, DIMS, "between 0 and the width 64"),
    ],
)
def test_refused_arguments(name: str, arguments: dict[str, str], dims: Dims, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, arguments, dims)
