"""Rotary encodings against other implementations and their papers' formulas, computed pair by pair in float64.

What transformers and x-transformers make of the same numbers is in tests/reference, which says how it was made.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding, scaled_product
from extrapolate.encodings.fope import FoPE
from extrapolate.encodings.rope import RoPE
from extrapolate.model.attention import Scoring, attend
from extrapolate.model.model import layer_encodings

K = 16
DIMS = Dims(width=64, heads=4, head_dim=K, seq_len=32)
REFERENCE = load_file(Path(__file__).parents[1] / "reference" / "rotary.safetensors")
# The frequencies of each rotated pair of 16 channels, by hand: with a theta of 10 000, RoPE's are powers of the root
# of 1/10. Of them two make a turn within 32 tokens, and a partial RoPE of 8 channels has every second one.
RISING = [10 ** (-m / 2) for m in range(8)]
FAR_FREQUENCIES = [500_000 ** (-m / 8) for m in range(8)]
FREQUENCIES = {
    "rope": RISING,
    "rope:pairing=interleaved": RISING,
    "rope:theta=500000": FAR_FREQUENCIES,
    "p-rope": [*RISING[:6], 0, 0],
    "p-rope:p=0.3,pairing=interleaved": [*RISING[:2], 0, 0, 0, 0, 0, 0],
    "p-rope:p=0.3,theta=100": [1, 100 ** (-1 / 8), 0, 0, 0, 0, 0, 0],
    "p-rope:drop=fastest": [0, 0, *RISING[2:]],
    "p-rope:p=0.3,drop=fastest,pairing=interleaved": [0, 0, 0, 0, 0, 0, *RISING[6:]],
    "partial-rope": [1, 1 / 100],
    "partial-rope:fraction=0.5": [1, 1 / 10, 1 / 100, 1 / 1000],
    "partial-rope:fraction=0.75,theta=64": [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32],
    "partial-rope:fraction=0.5,pairing=interleaved": [1, 1 / 10, 1 / 100, 1 / 1000],
    "hope": [*RISING[:2], 0, 0, 0, 0, 0, 0],
    "hope:kept=5,pairing=interleaved": [*RISING[:5], 0, 0, 0],
    "rnope:every=1": [],
    "rnope:every=2": RISING,
    "local-global:every=1": [1_000_000 ** (-m / 8) for m in range(8)],
    "local-global:every=1,theta=10000,factor=8": [frequency / 8 for frequency in RISING],
    "local-global:every=2": RISING,
    "local-global:every=2,local_theta=500000": FAR_FREQUENCIES,
}
RELATIVE = [spec for spec in FREQUENCIES if spec != "rnope:every=1"] + [
    "xpos", "xpos:scale_base=9,gamma=2", "pope", "pope:delta=uniform", "fope:gain=0",
]  # fmt: skip


def make(spec: str, dims: Dims = DIMS, layer: int = 0) -> Encoding:
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    layers = 4 if parsed.name in ("rnope", "local-global") else 1
    return layer_encodings(parsed.name, parsed.arguments, dataclasses.replace(dims, layers=layers))[layer]


def positions(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def pairs_of(channels: int, pairing: str) -> list[tuple[int, int]]:
    half = channels // 2
    return [(m, m + half) if pairing == "half" else (2 * m, 2 * m + 1) for m in range(half)]


def turned(x: Tensor, frequencies: Sequence[float], places: Sequence[float], pairing: str = "half") -> np.ndarray:
    """x [..., T, K] with pair m turned by place times frequencies[m], in float64; channels beyond the pairs stay."""
    x64 = x.double().numpy()
    out = x64.copy()
    for m, (a, b) in enumerate(pairs_of(2 * len(frequencies), pairing)):
        for t, place in enumerate(places):
            cosine, sine = math.cos(place * frequencies[m]), math.sin(place * frequencies[m])
            out[..., t, a] = x64[..., t, a] * cosine - x64[..., t, b] * sine
            out[..., t, b] = x64[..., t, b] * cosine + x64[..., t, a] * sine
    return out


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


# Every encoding that turns pairs


@pytest.mark.parametrize("spec", FREQUENCIES)
def test_each_pair_turns_by_its_frequency(spec: str) -> None:
    pairing = specs.parse(spec).arguments.get("pairing", "half")
    q, k = random(2, 1, 4, 50, K).unbind()
    actual_q, actual_k = make(spec).rotate(q, k, positions(50), positions(50))
    np.testing.assert_allclose(actual_q.numpy(), turned(q, FREQUENCIES[spec], range(50), pairing), atol=2e-5)
    np.testing.assert_allclose(actual_k.numpy(), turned(k, FREQUENCIES[spec], range(50), pairing), atol=2e-5)


@pytest.mark.parametrize("spec", FREQUENCIES)
def test_queries_and_keys_may_be_at_different_positions(spec: str) -> None:
    """Fractions too, as position interpolation makes them."""
    pairing = specs.parse(spec).arguments.get("pairing", "half")
    q, k = random(2, 1, 4, 3, K).unbind()
    pos_T, pos_S = torch.tensor([7.5, 40.0, 499.0]), torch.tensor([0.0, 3.25, 500.0])
    actual_q, actual_k = make(spec).rotate(q, k, pos_T, pos_S)
    np.testing.assert_allclose(actual_q.numpy(), turned(q, FREQUENCIES[spec], [7.5, 40, 499], pairing), atol=1e-4)
    np.testing.assert_allclose(actual_k.numpy(), turned(k, FREQUENCIES[spec], [0, 3.25, 500], pairing), atol=1e-4)


@pytest.mark.parametrize("spec", FREQUENCIES)
def test_a_rotation_is_a_block_diagonal_matrix(spec: str) -> None:
    """q_i is R_i q, and R_i is orthogonal."""
    pairing = specs.parse(spec).arguments.get("pairing", "half")
    x = random(1, 1, 30, K)
    actual, _ = make(spec).rotate(x, x, positions(30), positions(30))
    for i in (0, 1, 29):
        matrix = np.eye(K)
        for w, (a, b) in zip(FREQUENCIES[spec], pairs_of(2 * len(FREQUENCIES[spec]), pairing), strict=True):
            matrix[[a, a, b, b], [a, b, a, b]] = math.cos(i * w), -math.sin(i * w), math.sin(i * w), math.cos(i * w)
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(K), atol=1e-12)
        np.testing.assert_allclose(actual[0, 0, i].numpy(), matrix @ x[0, 0, i].double().numpy(), atol=1e-5)


@pytest.mark.parametrize("spec", RELATIVE)
def test_scores_depend_on_distance_only(spec: str) -> None:
    q, k = random(2, 1, 4, 9, K).unbind()
    encoding = make(spec)
    near, far = products(encoding, q, k), products(encoding, q, k, first=100)
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(near, scaled_product(q, k), rtol=0, atol=1e-3)
    same = products(encoding, q[:, :, :1].expand(-1, -1, 9, -1), k[:, :, :1].expand(-1, -1, 9, -1))
    for distance in range(-8, 9):
        diagonal = same.diagonal(distance, -2, -1)
        torch.testing.assert_close(diagonal, diagonal[..., :1].expand_as(diagonal), rtol=1e-4, atol=1e-5)
    assert same[0, 0, :, 0].unique().numel() == 9, "each distance has a score of its own"


# RoPE


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
    q, k = random(2, 3, 4, 50, 16).unbind()
    cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(50)[None])
    expected = apply_rotary_pos_emb(q, k, cos, sin)
    actual = RoPE(DIMS, theta=theta).rotate(q, k, positions(50), positions(50))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "spec",
    [
        "rope:pairing=interleaved,theta=10000",
        "rope:pairing=interleaved,theta=500000",
        "partial-rope:fraction=0.25,theta=10000",
        "partial-rope:fraction=0.5,theta=500",
        "partial-rope:fraction=0.5,pairing=interleaved",
    ],
)
def test_rotations_are_those_of_other_implementations(spec: str) -> None:
    """x-transformers pairs neighbours, and GPT-NeoX in transformers halves of the rotated part."""
    actual = make(spec).rotate(REFERENCE["q"], REFERENCE["k"], positions(24), positions(24))
    torch.testing.assert_close(actual, (REFERENCE[f"{spec} q"], REFERENCE[f"{spec} k"]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_is_multiplication_by_complex_numbers(pairing: str) -> None:
    """The paper's own form: each pair is a complex number, turned by exp(i n w)."""
    x = np.random.default_rng(0).normal(size=(7, 16))
    w = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
    pairs = x[:, :8] + 1j * x[:, 8:] if pairing == "half" else x[:, 0::2] + 1j * x[:, 1::2]
    complex_turned = pairs * np.exp(1j * np.arange(7)[:, None] * w)
    expected = np.empty_like(x)
    if pairing == "half":
        expected[:, :8], expected[:, 8:] = complex_turned.real, complex_turned.imag
    else:
        expected[:, 0::2], expected[:, 1::2] = complex_turned.real, complex_turned.imag
    q = torch.tensor(x, dtype=torch.float32)[None, None]
    actual, _ = make(f"rope:pairing={pairing}").rotate(q, q, positions(7), positions(7))
    np.testing.assert_allclose(actual[0, 0].numpy(), expected, atol=1e-5)


def test_rope_leaves_position_zero_and_norms_alone() -> None:
    q = random(1, 2, 11, 16)
    rotated, _ = RoPE(DIMS).rotate(q, q, positions(11), positions(11))
    assert torch.equal(rotated[:, :, 0], q[:, :, 0])
    torch.testing.assert_close(rotated.norm(dim=-1), q.norm(dim=-1))


# p-RoPE and partial RoPE


@pytest.mark.parametrize("name", [name for name in REFERENCE if name.startswith("p-rope")])
def test_p_rope_has_the_frequencies_of_transformers_proportional_type(name: str) -> None:
    spec, head_dim = name.split(" frequencies of ")
    frequencies = REFERENCE[name].tolist()
    assert len(frequencies) == int(head_dim) // 2
    x = random(1, 1, 20, int(head_dim))
    dims = dataclasses.replace(DIMS, head_dim=int(head_dim))
    actual, _ = make(spec, dims).rotate(x, x, positions(20), positions(20))
    np.testing.assert_allclose(actual.numpy(), turned(x, frequencies, range(20)), atol=1e-5)


def test_p_rope_rounds_the_kept_pairs_down() -> None:
    """0.3 of 8 pairs are two, and the others keep content as it is."""
    x = torch.ones(1, 1, 2, 16)
    rotated, _ = make("p-rope:p=0.3").rotate(x, x, positions(2), positions(2))
    assert (rotated[0, 0, 1] != 1).nonzero().flatten().tolist() == [0, 1, 8, 9]


@pytest.mark.parametrize("drop", ["slowest", "fastest"])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_p_rope_lies_between_rope_and_nope(pairing: str, drop: str) -> None:
    q, k = random(2, 1, 4, 40, K).unbind()
    pos = positions(40)
    whole = make(f"p-rope:p=1,drop={drop},pairing={pairing}").rotate(q, k, pos, pos)
    nothing = make(f"p-rope:p=0,drop={drop},pairing={pairing}").rotate(q, k, pos, pos)
    for rotated, rope, content in zip(
        whole, make(f"rope:pairing={pairing}").rotate(q, k, pos, pos), (q, k), strict=True
    ):
        assert torch.equal(rotated, rope)
        assert not torch.equal(rotated, content)
    assert torch.equal(nothing[0], q)
    assert torch.equal(nothing[1], k)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_partial_rope_lies_between_rope_and_nope(pairing: str) -> None:
    q, k = random(2, 1, 4, 40, K).unbind()
    pos = positions(40)
    whole = make(f"partial-rope:fraction=1,pairing={pairing}").rotate(q, k, pos, pos)
    nothing = make(f"partial-rope:fraction=0,pairing={pairing}").rotate(q, k, pos, pos)
    quarter, _ = make(f"partial-rope:pairing={pairing}").rotate(q, k, pos, pos)
    for rotated, rope in zip(whole, make(f"rope:pairing={pairing}").rotate(q, k, pos, pos), strict=True):
        assert torch.equal(rotated, rope)
    assert torch.equal(nothing[0], q)
    assert torch.equal(nothing[1], k)
    assert torch.equal(quarter[..., 4:], q[..., 4:])


# FoPE: with 64 tokens and a theta of 100, five of eight pairs complete a turn, and four are given a mixture

FOPE_DIMS = dataclasses.replace(DIMS, seq_len=64)


def fope_by_hand(x: Tensor, tables: dict[str, np.ndarray], theta: float) -> np.ndarray:
    """x [1, H, T, K] with a mixture of cosines and sines in place of one, and the other pairs as they were."""
    x64, out = x.double().numpy(), x.double().numpy().copy()
    heads, kept, columns = tables["cos_HMC"].shape
    for h in range(heads):
        for t in range(x.shape[2]):
            for c in range(columns):
                cosine = sum(tables["cos_HMC"][h, m, c] * math.cos(t * theta ** (-2 * m / K)) for m in range(kept))
                sine = sum(tables["sin_HMC"][h, m, c] * math.sin(t * theta ** (-2 * m / K)) for m in range(kept))
                a, b = x64[0, h, t, c], x64[0, h, t, c + K // 2]
                out[0, h, t, c], out[0, h, t, c + K // 2] = a * cosine - b * sine, b * cosine + a * sine
    return out


@pytest.mark.parametrize(("kept", "theta"), [(None, 100.0), (3, 10_000.0), (8, 10_000.0)])
def test_fope_mixes_frequencies(kept: int | None, theta: float) -> None:
    torch.manual_seed(0)
    fope = FoPE(FOPE_DIMS, kept=kept, theta=theta)
    tables = {name: buffer.double().numpy() for name, buffer in fope.named_buffers()}
    q, k = random(2, 1, 4, 20, K).unbind()
    actual_q, actual_k = fope.rotate(q, k, positions(20), positions(20))
    np.testing.assert_allclose(actual_q.numpy(), fope_by_hand(q, tables, theta), atol=1e-5)
    np.testing.assert_allclose(actual_k.numpy(), fope_by_hand(k, tables, theta), atol=1e-5)
    still = [*range(min(kept or 5, 4), 8)]
    still += [c + 8 for c in still]
    assert torch.equal(actual_q[..., still], q[..., still])
    assert not torch.allclose(actual_q.norm(dim=-1), q.norm(dim=-1), rtol=0.05), "it is no rotation"


@pytest.mark.parametrize(
    ("arguments", "ones"),
    [
        ({"theta": 100.0}, [(0, 0), (2, 1), (4, 2)]),  # row 6 of the last column does not exist
        ({"kept": 8}, [(0, 0), (2, 1), (4, 2), (6, 3)]),
        ({"kept": 4}, [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ({}, [(0, 0), (1, 1), (2, 2)]),  # w_2 = 0.1 and 2 pi / 64 = 0.098
    ],
)
def test_fope_without_noise_is_one_frequency_a_pair(arguments: dict[str, float], ones: list[tuple[int, int]]) -> None:
    fope = FoPE(FOPE_DIMS, gain=0.0, **arguments)
    for table_HMC in (fope.cos_HMC, fope.sin_HMC):
        for table_MC in table_HMC:
            assert [tuple(place) for place in table_MC.nonzero().tolist()] == ones
            assert (table_MC[table_MC != 0] == 1).all()
    x = random(1, 4, 20, K)
    actual, _ = fope.rotate(x, x, positions(20), positions(20))
    frequencies = [0.0] * 8
    for row, column in ones:
        frequencies[column] = arguments.get("theta", 10_000.0) ** (-2 * row / K)
    expected = turned(x, frequencies, range(20))
    empty = fope.cos_HMC.shape[2] - len(ones)
    for column in range(len(ones), len(ones) + empty):
        expected[..., [column, column + 8]] = 0.0
    np.testing.assert_allclose(actual.numpy(), expected, atol=1e-5)


def test_fope_noise() -> None:
    """Drawn once for all layers, for each head, and for cosines and sines apart; not trained, and stored."""
    torch.manual_seed(0)
    first, second = layer_encodings(
        "fope", {"kept": 20}, Dims(width=2048, heads=32, head_dim=64, seq_len=512, layers=2)
    )
    assert isinstance(first, FoPE)
    assert isinstance(second, FoPE)
    assert list(first.parameters()) == []
    assert set(first.state_dict()) == {"cos_HMC", "sin_HMC"}
    assert second.cos_HMC is first.cos_HMC
    assert second.sin_HMC is first.sin_HMC
    assert not torch.allclose(first.cos_HMC, first.sin_HMC, atol=0.01)
    assert not torch.allclose(first.cos_HMC[0], first.cos_HMC[1], atol=0.01)
    still = FoPE(first.dims, kept=20, gain=0.0)
    for noise in (first.cos_HMC - still.cos_HMC, first.sin_HMC - still.sin_HMC):
        assert noise.mean().item() == pytest.approx(0, abs=3e-3)
        assert noise.std().item() == pytest.approx(0.3 * math.sqrt(2 / (16 * (20 + 32))), rel=0.03)


def test_fope_gives_the_queries_of_a_group_their_keys_table() -> None:
    torch.manual_seed(0)
    x = random(1, 1, 10, K)
    pos = positions(10)
    q, k = FoPE(DIMS).rotate(x.expand(-1, 4, -1, -1), x.expand(-1, 2, -1, -1), pos, pos)
    for head in range(4):
        assert torch.equal(q[:, head], k[:, head // 2])
    assert not torch.allclose(k[:, 0], k[:, 1], atol=1e-2)


# RNoPE and local-global


@pytest.mark.parametrize(
    ("spec", "far"), [("rnope:window=3", []), ("local-global:every=4,window=3,theta=500000", FAR_FREQUENCIES)]
)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_most_layers_see_a_window_and_every_fourth_all(spec: str, far: list[float], kv_heads: int) -> None:
    """Query i sees keys i - window + 1..i, with RoPE's scores; or all of them, with other frequencies or none."""
    q, k = random(1, 4, 12, K), random(1, kv_heads, 12, K)
    shared = k.repeat_interleave(4 // kv_heads, dim=1)
    for layer in range(4):
        encoding = make(spec, layer=layer)
        frequencies, window = (far, 12) if layer == 3 else (RISING, 3)
        scores = turned(q, frequencies, range(12)) @ turned(shared, frequencies, range(12)).swapaxes(-1, -2) / 4
        for i in range(12):
            for j in range(12):
                if not i - window < j <= i:
                    scores[..., i, j] = -np.inf
        expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(weights(encoding, q, k).numpy(), expected, rtol=1e-4, atol=1e-6)
