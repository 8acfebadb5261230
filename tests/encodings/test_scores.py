"""Scores of distance and content together: each formula for one query and key at a time, in float64."""

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.model import attention
from extrapolate.model.attention import chunk_context, explicit_scores
from extrapolate.model.model import layer_encodings

B, H, K, D, T = 2, 3, 8, 10, 13
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=16, layers=2)
SLOPES = [1 / 16, 1 / 256, 1 / 4]  # ALiBi's for 3 heads

# The score of query i and key j of a head, from their vectors before any rotation, the input and parameters:
# score(p, h, i, j, q, k, x), with q and k [T, K] and x [T, D] of one window.
Score = Callable[[dict[str, Tensor], int, int, int, Tensor, Tensor, Tensor], Tensor]


def made(spec: str, move: float = 0.5) -> Encoding:
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    encoding = layer_encodings(parsed.name, parsed.arguments, DIMS)[0]
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(move * torch.randn_like(parameter))
    return encoding


def window(length: int = T) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, H, length, K), torch.randn(B, H, length, K), torch.randn(B, length, D)


def scores(encoding: Encoding, q: Tensor, k: Tensor, x: Tensor, queries: int = 100) -> Tensor:
    """What weights are made of, [B, H, T, T], some queries at a time, 0 for hidden keys."""
    length, state, rows = q.shape[2], encoding.prepare(x), []
    pos = torch.arange(length, dtype=torch.float32)
    q, k = encoding.rotate(q, k, pos, pos, state)
    for start in range(0, length, queries):
        context = chunk_context(encoding, pos, pos, state, start, min(start + queries, length))
        found = explicit_scores(q[:, :, context.queries], k[:, :, context.keys], encoding, context, None)
        found = found.masked_fill(context.hidden_TS, 0.0)
        rows.append(torch.nn.functional.pad(found, (context.keys.start, length - context.keys.stop)))
    return torch.cat(rows, dim=2)


def by_hand(encoding: Encoding, score: Score, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
    p = {name: value.double() for name, value in encoding.named_parameters()}
    q, k, x = q.double(), k.double(), x.double()
    rows = [
        torch.stack(
            [score(p, h, i, j, q[b, h], k[b, h], x[b]) if j <= i else q.new_zeros(()) for j in range(q.shape[2])]
        )
        for b in range(q.shape[0])
        for h in range(H)
        for i in range(q.shape[2])
    ]
    return torch.stack(rows).view(*q.shape[:3], -1)


def turned(vector: Tensor, position: int, kept: int, theta: float = 10_000.0) -> Tensor:
    """The first `kept` pairs (m, m + K/2) turned."""
    out = vector.clone()
    for m in range(kept):
        angle = position * theta ** (-2 * m / K)
        a, b = vector[m], vector[m + K // 2]
        out[m] = a * math.cos(angle) - b * math.sin(angle)
        out[m + K // 2] = b * math.cos(angle) + a * math.sin(angle)
    return out


def softplus(x: Tensor) -> Tensor:
    return torch.log(1 + torch.exp(x))


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def scale_invariant(tau: float, kept: int) -> Score:
    def score(p: dict[str, Tensor], h: int, i: int, j: int, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        z = turned(q[i], i, kept) @ turned(k[j], j, kept) / math.sqrt(K)
        return math.sqrt(2 * math.log((i - j) / tau + 1) + 1) * z - 2 * math.log((i - j) / tau + 1)

    return score


def bam(loc: float | None = None) -> Score:
    def score(p: dict[str, Tensor], h: int, i: int, j: int, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        mu = p["loc_H"][h] if loc is None else torch.tensor(loc, dtype=torch.float64)
        away = (j - i - (torch.exp(mu) - torch.exp(-mu))).abs() + 1e-5
        return q[i] @ k[j] / math.sqrt(K) - torch.exp(p["scale_H"][h]) * away ** p["shape_H"][h]

    return score


def grape_a(p: dict[str, Tensor], h: int, i: int, j: int, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
    v, u = p["query_HK"][h] / p["query_HK"][h].norm(), p["key_HK"][h] / p["key_HK"][h].norm()
    gates = softplus(v @ q[i] / math.sqrt(K)) + softplus(u @ k[j] / math.sqrt(K))
    return q[i] @ k[j] / math.sqrt(K) - (i - j) * softplus(p["omega_H"][h]) * SLOPES[h] * gates


def grape_ap(width: int) -> Score:
    def score(p: dict[str, Tensor], h: int, i: int, j: int, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        projected = x @ p["project.weight"][h * width : (h + 1) * width].T
        path = q.new_zeros(())
        for t in range(j + 1, i + 1):
            n = projected[t] / torch.sqrt(projected[t].square().mean())
            half = width // 2
            cos, sin = math.cos(-t), math.sin(-t)
            back = torch.cat([n[:half] * cos - n[half:] * sin, n[half:] * cos + n[:half] * sin])
            path = path + SLOPES[h] * torch.log(sigmoid(projected[i] @ back / width))
        return q[i] @ k[j] / math.sqrt(K) + path

    return score


def gape(length: int, kept: int = K // 2) -> Score:
    def score(p: dict[str, Tensor], h: int, i: int, j: int, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        g = softplus(p["query_HK"][h] @ q[i] + p["query_bias_H"][h])
        landmark = sigmoid(p["key_HK"][h] @ k[j] + p["key_bias_H"][h])
        # The paper's bias, less its value for j = i in this row: a constant of the row.
        bias = softplus(p["gamma_H"][h]) * g * (j * (1 - landmark) + i * landmark - i) / length
        return turned(q[i], i, kept) @ turned(k[j], j, kept) / math.sqrt(K) + bias

    return score


def tapa(amplitude: int, power: float) -> Score:
    def score(p: dict[str, Tensor], h: int, i: int, j: int, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        n = amplitude
        phase = 2 * math.pi * (i - j) ** power * (q[i, n:] @ k[j, n:]) / math.sqrt(K - n)
        return q[i, :n] @ k[j, :n] / math.sqrt(n) * torch.cos(phase)

    return score


FORMULAS: dict[str, Score] = {
    "scale-invariant": scale_invariant(10, kept=1),  # w_1 = 0.1, below 2 pi / 16
    "scale-invariant:tau=0.5,kept=3": scale_invariant(0.5, kept=3),
    "bam": bam(0.0),
    "bam:train_loc=true": bam(),
    "bam:loc=-0.7,shape=0.4": bam(-0.7),
    "grape": grape_a,
    "grape:form=ap": grape_ap(8),
    "grape:form=ap,width=2": grape_ap(2),
    "gape": gape(16),
    "gape:length=5,p=0.5": gape(5, kept=2),
    "tapa": tapa(4, 0.1),
    "tapa:amplitude=0.25,power=0.3": tapa(2, 0.3),
}


@cache
def formula(spec: str) -> Tensor:
    with torch.no_grad():
        return by_hand(made(spec), FORMULAS[spec], *window())


@pytest.mark.parametrize("queries", [100, 1, 5])
@pytest.mark.parametrize("spec", FORMULAS)
def test_scores_are_the_formula(spec: str, queries: int) -> None:
    with torch.no_grad():
        actual = scores(made(spec), *window(), queries)
    torch.testing.assert_close(actual.double(), formula(spec), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", ["bam:train_loc=true", "grape", "grape:form=ap", "gape", "tapa"])
def test_gradients_are_the_formulas(spec: str) -> None:
    encoding = made(spec)
    q, k, x = (part.requires_grad_() for part in window(7))
    leaves = [q, k, *([x] if "ap" in spec.split("=") else []), *encoding.parameters()]
    weights = torch.randn(B, H, 7, 7).tril()
    expected = torch.autograd.grad((by_hand(encoding, FORMULAS[spec], q, k, x) * weights).sum(), leaves)
    actual = torch.autograd.grad((scores(encoding, q, k, x, 3) * weights).sum(), leaves)
    for mine, theirs in zip(actual, expected, strict=True):
        assert theirs.abs().max() > 1e-3
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4 * theirs.abs().max().item())


def same_as(spec: str, encoding: Encoding, rtol: float = 1e-5) -> None:
    """What a head gathers is what it gathers with another encoding."""
    other, (q, k, x), pos = made(spec, move=0.0), window(), torch.arange(T, dtype=torch.float32)
    mixed = []
    for each in (encoding, other):
        state = each.prepare(x)
        turned_q, turned_k = each.rotate(q, k, pos, pos, state)
        mixed.append(attention.attend(turned_q, turned_k, q, attention.Scoring(each, pos, state)))
    torch.testing.assert_close(mixed[0], mixed[1], rtol=rtol, atol=1e-5)


# Scale-invariant attention


def test_without_a_scale_it_is_p_rope() -> None:
    same_as("p-rope:p=0.75", made("scale-invariant:tau=1e9,kept=3"))
    same_as("hope", made("scale-invariant:tau=1e9"))


def test_every_octave_has_equal_weight_if_scores_are_normal() -> None:
    """E exp(a z + m) = exp(a^2 / 2 + m) = e^0.5 / (r/tau + 1)."""
    encoding, pos, keys = made("scale-invariant:tau=2,kept=0"), torch.tensor([300.0]), torch.arange(301.0)
    context = attention.Context(pos, keys, slice(300, 301), slice(0, 301), torch.zeros(1, 301, dtype=torch.bool), None)
    one, none = torch.ones(1, H, 1, K), torch.zeros(1, H, 301, K)
    low = encoding.scores(one, none, context)[0, 0, 0]
    stretch = encoding.scores(one, none + 1 / math.sqrt(K), context)[0, 0, 0] - low
    expected = math.exp(0.5) / ((300 - keys) / 2 + 1)
    torch.testing.assert_close(torch.exp(stretch**2 / 2 + low), expected, rtol=1e-4, atol=0.0)


# BAM


def test_bam_starts_as_alibi() -> None:
    same_as("alibi", made("bam", move=0.0), rtol=1e-4)
    assert made("bam:shape=0.5", move=0.0).get_parameter("shape_H").tolist() == [0.5] * H


def test_layers_share_the_prior_unless_they_have_their_own() -> None:
    for spec, count in (({}, 2), ({"train_loc": "true"}, 3), ({"shared": "false"}, 4)):
        layers = layer_encodings("bam", spec, DIMS)
        assert len({id(p) for layer in layers for p in layer.parameters()}) == count


def test_mu_moves_the_peak_into_the_past_if_it_is_negative() -> None:
    pos = torch.arange(40.0)
    bias = made("bam:loc=-1.5", move=0.0).bias(pos[-1:], pos)
    assert bias.argmax(dim=-1).flatten().tolist() == [39 - round(2 * math.sinh(1.5))] * H


# GRAPE


def test_grape_starts_with_alibis_slopes_and_unit_vectors() -> None:
    """A query and a key of zeros have two gates of ln 2."""
    zeros = torch.zeros(B, H, T, K)
    expected = -2 * math.log(2) * torch.tensor(SLOPES)[:, None, None]
    distance = torch.arange(T)[:, None] - torch.arange(T)
    found = scores(made("grape", move=0.0), zeros, zeros, torch.zeros(B, T, D))
    torch.testing.assert_close(found, (expected * distance.tril()).expand_as(found), rtol=1e-5, atol=1e-6)


def test_the_length_of_grapes_vectors_means_nothing() -> None:
    one, other = made("grape"), made("grape")
    with torch.no_grad():
        other.query_HK.mul_(3.0)
        other.key_HK.mul_(0.2)
        torch.testing.assert_close(scores(one, *window()), scores(other, *window()))


def test_only_the_form_with_positions_takes_other_ones() -> None:
    assert made("grape").positional
    assert "distances of pairs" in made("grape").accepts
    path = made("grape:form=ap")
    assert not path.positional
    assert path.accepts == {"logits"}


def test_the_projection_of_grapes_path_starts_as_in_the_code() -> None:
    weight = layer_encodings("grape", {"form": "ap"}, Dims(512, 8, 64, seq_len=16))[0].project.weight.detach()
    assert weight.shape == (8 * 8, 512)
    assert float(weight.std()) == pytest.approx(0.5 / math.sqrt(512), rel=0.05)


# GAPE


def test_at_first_every_key_of_gape_is_half_a_landmark() -> None:
    zeros, distance = torch.zeros(B, H, T, K), torch.arange(T)[:, None] - torch.arange(T)
    found = scores(made("gape", move=0.0), zeros, zeros, torch.zeros(B, T, D))
    torch.testing.assert_close(found, (-0.5 * distance.tril() / 16).expand_as(found))


def test_where_every_key_is_a_landmark_gape_is_rope() -> None:
    encoding = made("gape")
    with torch.no_grad():
        encoding.key_bias_H.fill_(100.0)
    same_as("rope", encoding)
    encoding = made("gape:p=0")
    with torch.no_grad():
        encoding.gamma_H.fill_(-100.0)
    same_as("none", encoding)


def test_gapes_gates_read_content_alone() -> None:
    """Moved far along, a window has the same scores."""
    encoding, (q, k, _) = made("gape"), window()
    found = []
    for first in (0.0, 1000.0):
        pos = torch.arange(T) + first
        turned_q, turned_k = encoding.rotate(q, k, pos, pos)
        context = chunk_context(encoding, pos, pos, None, 0, T)
        found.append(encoding.scores(turned_q, turned_k, context).tril())
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_gapes_decay_per_token_is_that_of_training_in_longer_windows() -> None:
    whole, short = (scores(made("gape"), *(part[..., :n, :] for part in window())) for n in (T, 9))
    torch.testing.assert_close(whole[:, :, :9, :9], short)


# TAPA


def test_with_phases_that_do_not_turn_tapa_is_no_encoding() -> None:
    q, k, x = window()
    q[..., K // 2 :] = 0.0
    torch.testing.assert_close(scores(made("tapa"), q, k, x), (q @ k.mT / math.sqrt(K // 2)).tril())


def test_a_tokens_score_with_itself_has_no_phase() -> None:
    q, k, x = window()
    own = (q * k)[..., : K // 2].sum(dim=-1) / math.sqrt(K // 2)
    torch.testing.assert_close(scores(made("tapa"), q, k, x).diagonal(dim1=-2, dim2=-1), own)
