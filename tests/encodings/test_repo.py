"""RePo against the authors' formula, token by token and pair by pair in float64."""

import cmath
import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, scaled_product
from extrapolate.encodings.none import NoPE
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.repo import RePo
from extrapolate.encodings.rope import RoPE
from extrapolate.model.model import layer_encodings

B, H, T, K, D, SIZE = 2, 6, 13, 8, 17, 3
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=7, layer=2, layers=3)


def moved(**arguments: object) -> RePo:
    """One whose positions are some tokens apart."""
    torch.manual_seed(0)
    encoding = RePo(DIMS, size=SIZE, theta=10.0, **arguments)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return encoding


def window(kv_heads: int = H) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, T, D), torch.randn(B, H, T, K), torch.randn(B, kv_heads, T, K)


def scores(encoding: RoPE, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    pos = torch.arange(float(x.shape[1]))
    with torch.no_grad():
        rotated_q, rotated_k = encoding.rotate(q, k, pos, pos, encoding.prepare(x))
    return scaled_product(rotated_q, rotated_k.repeat_interleave(H // k.shape[1], dim=1))


def by_hand(encoding: RePo, x: Tensor, q: Tensor, k: Tensor, pairs: list[tuple[int, int]], scale: float) -> Tensor:
    """The scaled scores: a pair of channels is a complex number. `scale` multiplies every frequency."""
    w_gate, w_content, w_place = (
        layer.weight.detach().double().numpy() for layer in (encoding.gate, encoding.content, encoding.place)
    )
    x, q, k = (tensor.double().numpy() for tensor in (x, q, k))
    group, found = H // k.shape[1], np.zeros((B, H, T, T))
    for b in range(B):
        place = []
        for t in range(T):
            gate = w_gate @ x[b, t]
            place.append(w_place @ (gate / (1 + np.exp(-gate)) * (w_content @ x[b, t])))
        for h, i, j in np.ndindex(H, T, T):
            first = h // group * group  # the head whose positions the group uses
            for m, (one, other) in enumerate(pairs):
                query, key = (complex(z[one], z[other]) for z in (q[b, h, i], k[b, h // group, j]))
                angle = (place[i][first] - place[j][first]) * 10.0 ** (-2 * m / K) * scale
                found[b, h, i, j] += (query * key.conjugate() * cmath.exp(1j * angle)).real / K**0.5
    return torch.from_numpy(found)


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_repo_is_the_authors_formula(kv_heads: int, scale: float) -> None:
    """Extensions of frequencies too: content's positions turn by what those leave."""
    x, q, k = window(kv_heads)
    encoding = moved()
    expected = by_hand(encoding, x, q, k, [(m, m + K // 2) for m in range(K // 2)], scale)
    view = encoding.extended(Plan(frequency_scale=(scale,) * (K // 2)))
    torch.testing.assert_close(scores(view, x, q, k).double(), expected, rtol=1e-5, atol=2e-5)


def test_its_pairs_may_be_interleaved() -> None:
    x, q, k = window()
    encoding = moved(pairing="interleaved")
    expected = by_hand(encoding, x, q, k, [(2 * m, 2 * m + 1) for m in range(K // 2)], 1.0)
    torch.testing.assert_close(scores(encoding, x, q, k).double(), expected, rtol=1e-5, atol=2e-5)


def test_a_token_in_its_place_is_rope_and_one_nowhere_is_nope() -> None:
    """A channel of x that says where the token is, through a gate that is nearly the identity."""
    x, q, k = window()
    encoding = RePo(DIMS, size=1, theta=10.0)
    with torch.no_grad():
        for layer in (encoding.gate, encoding.content, encoding.place):
            layer.weight.zero_()
        torch.testing.assert_close(scores(encoding, x, q, k), scores(NoPE(DIMS), x, q, k))
        encoding.gate.weight[0, 0], encoding.content.weight[0, 1] = 1.0, 1.0
        encoding.place.weight.fill_(1 / 50)
    x[..., 0], x[..., 1] = 50.0, torch.arange(float(T))
    torch.testing.assert_close(scores(encoding, x, q, k), scores(RoPE(DIMS, theta=10.0), x, q, k), rtol=1e-4, atol=1e-4)


def test_first_layers_are_rope_and_have_no_weights() -> None:
    x, q, k = window()
    for layer, encoding in enumerate(layer_encodings("repo", {"start": 2}, dataclasses.replace(DIMS, layer=0))):
        assert bool(list(encoding.parameters())) == (layer == 2)
        assert (encoding.prepare(x) is None) == (encoding.rotations() is not None) == (layer < 2)
        assert torch.equal(scores(encoding, x, q, k), scores(RoPE(DIMS), x, q, k)) == (layer < 2)


@pytest.mark.parametrize(("layers", "start"), [(1, 0), (2, 1), (4, 1), (6, 2), (12, 4), (16, 5), (32, 10)])
def test_defaults_are_those_of_the_docstring(layers: int, start: int) -> None:
    encoding = RePo(Dims(width=256, heads=4, head_dim=64, seq_len=64, layers=layers, layer=layers - 1))
    assert encoding.arguments() == {"start": start, "size": 32, "theta": 10_000.0, "pairing": "half"}
    assert encoding.gate.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert encoding.caption
