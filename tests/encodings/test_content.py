"""Content-dependent encodings: their papers' formulas pair by pair in float64, and x-transformers' values."""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.model import attention
from extrapolate.model.model import layer_encodings

B, H, K, D = 2, 2, 8, 20
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=16)
REFERENCE = load_file(Path(__file__).parents[1] / "reference" / "content.safetensors")  # see make_content.py there

# The score of a query and a key, from the queries and keys of their head, [T, K]: score(b, h, i, j, q, k).
Score = Callable[[int, int, int, int, Tensor, Tensor], Tensor]


@pytest.fixture(params=["one piece", "chunks of 5", "chunks of 20"])
def attend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """attention.attend: in one piece, as in training, or some queries at a time, as in evaluation."""
    if request.param != "one piece":
        monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", int(request.param.split()[-1]))

    def call(*arguments: Any) -> Tensor:
        with torch.set_grad_enabled(request.param == "one piece"):
            return attention.attend(*arguments).detach()

    return call


def made(spec: str, dims: Dims = DIMS, scale: float = 0.5) -> Encoding:
    """An encoding with parameters that are not where they start."""
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    encoding = layer_encodings(parsed.name, parsed.arguments, dims)[0]
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return encoding


def window(length: int, kv_heads: int = H) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values, the attention input and positions."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(B, heads, length, K) for heads in (H, kv_heads, kv_heads))
    return q, k, v, torch.randn(B, length, D), torch.arange(length, dtype=torch.float32)


def by_hand(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    """Softmax attention in float64, one query and one key at a time."""
    q, k, v = q.double(), k.double(), v.double()
    rows = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h * k.shape[1] // q.shape[1]
            for i in range(q.shape[2]):
                scores = torch.stack([score(b, h, i, j, q[b, h], k[b, g]) for j in range(i + 1)])
                rows.append(scores.softmax(dim=0) @ v[b, g, : i + 1])
    return torch.stack(rows).view(*q.shape[:3], v.shape[-1])


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected.detach(), rtol=1e-4, atol=2e-5)


def cope_score(encoding: Encoding, scaled: bool = False) -> Score:
    table = encoding.get_parameter("table_PK").double()

    def score(b: int, h: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
        position = torch.sigmoid(k[j : i + 1] @ q[i] / math.sqrt(K)).sum().clamp(max=len(table) - 1)
        low, high = math.floor(position.item()), math.ceil(position.item())
        part = position - low
        added = (1 - part) * (q[i] @ table[low]) + part * (q[i] @ table[high])
        return q[i] @ k[j] / math.sqrt(K) + (added / math.sqrt(K) if scaled else added)

    return score


def fox_score(encoding: Encoding, x: Tensor) -> Score:
    weight, bias = (encoding.get_parameter(f"gate.{name}").double() for name in ("weight", "bias"))
    gates = torch.sigmoid(x.double() @ weight.T + bias)

    def score(b: int, h: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
        return q[i] @ k[j] / math.sqrt(K) + gates[b, j + 1 : i + 1, h].log().sum()

    return score


def cable_score(encoding: Encoding, x: Tensor) -> Score:
    """As CABLE has it: cumulative sums of -softplus, of weights that are FoX's negated, and no 1 / sqrt(K)."""
    weight, bias = (-encoding.get_parameter(f"gate.{name}").double() for name in ("weight", "bias"))
    sums = -torch.log(1 + torch.exp(x.double() @ weight.T + bias)).cumsum(dim=1)

    def score(b: int, h: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
        return q[i] @ k[j] + sums[b, i, h] - sums[b, j, h]

    return score


def wall_score(encoding: Encoding, x: Tensor) -> Score:
    weight, bias = (encoding.get_parameter(f"gate.{name}").double() for name in ("weight", "bias"))
    gates = F.logsigmoid(x.double() @ weight.T + bias)

    def score(b: int, h: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
        decay = torch.exp(gates[b, j + 1 : i + 1, h * K : (h + 1) * K].sum(dim=0))
        return (q[i] * k[j] * decay).sum() / math.sqrt(K)

    return score


def score_of(spec: str, encoding: Encoding, x: Tensor) -> Score:
    """The formula of an encoding."""
    if spec.startswith("cope"):
        return cope_score(encoding, scaled="scaled=true" in spec)
    if spec.startswith("fox"):
        return (cable_score if "cable" in spec else fox_score)(encoding, x)
    return wall_score(encoding, x)


@cache
def formula(spec: str, length: int, kv_heads: int) -> Tensor:
    """What attention should give with the encoding `made` of a spec, on a window of that length."""
    q, k, v, x, _ = window(length, kv_heads)
    with torch.no_grad():
        return by_hand(q, k, v, score_of(spec, made(spec), x))


def check(attend: Callable[..., Tensor], spec: str, length: int, kv_heads: int) -> None:
    encoding = made(spec)
    q, k, v, x, pos = window(length, kv_heads)
    close(attend(q, k, v, attention.Scoring(encoding, pos, encoding.prepare(x))), formula(spec, length, kv_heads))


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize(
    "spec",
    [
        "cope",
        "cope:count=4",  # positions reach 3, then stop
        "cope:count=4,scaled=true",
        "fox",
        "fox:gate_bias=5",
        "fox:form=cable",
        "wall",
        "wall:gate_bias=0",
    ],
)
def test_scores_are_the_formula(spec: str, kv_heads: int, attend: Callable[..., Tensor]) -> None:
    check(attend, spec, 23, kv_heads)


@pytest.mark.parametrize("explicit_up_to", [256, 0])
@pytest.mark.parametrize(
    "spec", ["cope:count=5", "cope:scaled=true", "fox", "fox:form=cable", "wall:gate_bias=0", "wall:gate_bias=-30"]
)
def test_gradients_are_the_formulas(spec: str, explicit_up_to: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of queries, keys, inputs and the encoding's parameters."""
    monkeypatch.setattr(attention, "EXPLICIT_UP_TO", explicit_up_to)
    monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 4)
    encoding = made(spec)
    q, k, v, x, pos = window(19 if spec.startswith("wall") else 11, kv_heads=1)
    leaves = {"q": q, "k": k, **dict(encoding.named_parameters())} | ({} if spec.startswith("cope") else {"x": x})
    for leaf in leaves.values():
        leaf.requires_grad_()
    weights = torch.randn_like(q)
    expected = torch.autograd.grad(
        (by_hand(q, k, v, score_of(spec, encoding, x)) * weights).sum(), list(leaves.values())
    )
    actual = torch.autograd.grad(
        (attention.attend(q, k, v, attention.Scoring(encoding, pos, encoding.prepare(x))) * weights).sum(),
        list(leaves.values()),
    )
    for mine, theirs in zip(actual, expected, strict=True):
        assert "-30" in spec or theirs.abs().max() > 1e-3
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4 * theirs.abs().max().item() + 1e-7)


# CoPE


def test_cope_adds_what_x_transformers_adds(attend: Callable[..., Tensor]) -> None:
    q, k, table, added = (REFERENCE[f"cope.{name}"] for name in ("q", "k", "table", "added"))
    batch, heads, length, head_dim = q.shape
    encoding = made(f"cope:count={len(table)}", Dims(heads * head_dim, heads, head_dim, seq_len=16))
    with torch.no_grad():
        encoding.get_parameter("table_PK").copy_(table)
    v = torch.randn(batch, heads, length, head_dim, generator=torch.Generator().manual_seed(0))

    def score(b: int, h: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
        return q[i] @ k[j] / math.sqrt(head_dim) + added[b, h, i, j].double()

    pos = torch.arange(length, dtype=torch.float32)
    close(attend(q, k, v, attention.Scoring(encoding, pos, encoding.prepare(q))), by_hand(q, k, v, score))


def test_cope_starts_as_no_encoding() -> None:
    cope, none = (layer_encodings(name, {}, DIMS)[0] for name in ("cope", "none"))
    q, k, v, x, pos = window(30)
    assert cope.get_parameter("table_PK").shape == (64, K)
    actual = attention.attend(q, k, v, attention.Scoring(cope, pos, cope.prepare(x)))
    torch.testing.assert_close(actual, attention.attend(q, k, v, attention.Scoring(none, pos)), rtol=1e-5, atol=1e-6)


def test_cope_sums_its_gates_in_float32() -> None:
    """Gates of 1/2 make every second position a half, which bfloat16 does not hold above 128."""
    length = 700
    encoding = layer_encodings("cope", {"count": "400"}, DIMS)[0]
    q, k, v = torch.zeros(3, B, H, length, K).unbind()
    q[..., 0] = k[..., 1] = 1.0
    v[..., 0] = torch.arange(length) % 2
    with torch.no_grad():
        encoding.get_parameter("table_PK")[:, 0] = 2.0 * torch.tensor([1.0, -1.0]).repeat(200)
        actual = attention.attend(
            q.bfloat16(), k.bfloat16(), v.bfloat16(), attention.Scoring(encoding, torch.arange(length).float())
        )
    for i in (0, 1, 100, 401, 650, 699):
        position = torch.arange(i + 1, 0, -1, dtype=torch.float64) / 2  # of keys 0..i
        added = torch.where(position % 1 > 0, 0.0, torch.where(position % 2 > 0, -2.0, 2.0))
        expected = added.double().softmax(dim=0) @ v[0, 0, : i + 1, 0].double()
        assert actual[0, 0, i, 0].item() == pytest.approx(expected.item(), abs=0.01)


# FoX and CABLE


def test_fox_adds_what_x_transformers_adds(attend: Callable[..., Tensor]) -> None:
    x, weight, bias, added = (REFERENCE[f"fox.{name}"] for name in ("x", "weight", "bias", "added"))
    (batch, length, width), heads = x.shape, len(bias)
    encoding = made("fox", Dims(width, heads, K, seq_len=16))
    with torch.no_grad():
        encoding.get_parameter("gate.weight").copy_(weight)
        encoding.get_parameter("gate.bias").copy_(bias)
    q, k, v = torch.randn(3, batch, heads, length, K, generator=torch.Generator().manual_seed(0)).unbind()

    def score(b: int, h: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
        return q[i] @ k[j] / math.sqrt(K) + added[b, h, i, j].double()

    pos = torch.arange(length, dtype=torch.float32)
    close(attend(q, k, v, attention.Scoring(encoding, pos, encoding.prepare(x))), by_hand(q, k, v, score))


def test_a_key_s_own_gate_does_not_count_and_the_query_s_does(attend: Callable[..., Tensor]) -> None:
    """Of two tokens with equal products, the second sees the first with f / (1 + f), f its own gate."""
    encoding = layer_encodings("fox", {}, DIMS)[0]
    q, k, v, x, pos = window(2)
    with torch.no_grad():
        encoding.get_parameter("gate.weight").zero_()[:, 0] = 1.0
    x[:, :, 0] = torch.tensor([-40.0, 1.5])
    v[:, :, 0], v[:, :, 1] = 1.0, 0.0
    f = 1 / (1 + math.exp(-1.5))
    mixed = attend(torch.zeros_like(q), k, v, attention.Scoring(encoding, pos, encoding.prepare(x)))
    torch.testing.assert_close(mixed[:, :, 1], torch.full((B, H, K), f / (1 + f)))


@pytest.mark.parametrize(("spec", "start"), [("fox", 0.0), ("fox:gate_bias=5", 5.0), ("wall", 8.0)])
def test_gates_start_where_gate_bias_says(spec: str, start: float) -> None:
    parsed = specs.parse(spec)
    bias = layer_encodings(parsed.name, parsed.arguments, DIMS)[0].get_parameter("gate.bias")
    assert bias.shape == (H,) if parsed.name == "fox" else (H * K,)
    assert set(bias.tolist()) == {start}


@pytest.mark.parametrize("name", ["fox", "wall"])
def test_the_weights_of_gates_start_as_the_models_do(name: str) -> None:
    """As all matrices of the decoder: normal, with a standard deviation of 0.02."""
    weight = layer_encodings(name, {}, Dims(512, 8, 64, seq_len=16))[0].gate.weight.detach()
    assert float(weight.std()) == pytest.approx(0.02, rel=0.1)
    assert abs(float(weight.mean())) < 0.002
    assert float(weight.abs().max()) > 0.05  # beyond what a uniform one of this deviation holds


@pytest.mark.parametrize("name", ["fox", "wall"])
def test_gates_are_summed_in_float32(name: str) -> None:
    """In bfloat16 neither ln 1/2 nor its multiples are what they should be."""
    encoding = layer_encodings(name, {"gate_bias": "0"}, DIMS)[0]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        encoding.get_parameter("gate.weight").zero_()
        sums = encoding.prepare(torch.randn(B, 3000, D))
    assert sums.dtype == torch.float32
    assert sums.shape[:3] == (B, H, 3000)
    first = sums[:, :, :1]  # whether or not the first gate is in the sums, its differences are the same
    expected = torch.arange(3000, dtype=torch.float64) * math.log(0.5)
    actual = (sums - first).double().view(B, H, 3000, -1)
    torch.testing.assert_close(actual, expected[:, None].expand_as(actual), rtol=1e-4, atol=1e-4)


# Wall


@pytest.mark.parametrize("length", [1, 15, 16, 17, 41, 64])
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_wall_of_any_length(length: int, kv_heads: int, attend: Callable[..., Tensor]) -> None:
    check(attend, "wall:gate_bias=1", length, kv_heads)


@pytest.mark.parametrize("gates", ["all forget", "channels differ", "tokens differ"])
def test_wall_with_gates_whose_inverse_overflows(gates: str, attend: Callable[..., Tensor]) -> None:
    """exp(-G) would be infinite after three tokens; where other gates are open, old keys are still seen."""
    encoding = made("wall:gate_bias=-30", scale=0.2)
    with torch.no_grad():
        if gates == "channels differ":
            encoding.get_parameter("gate.bias")[::2] = 4.0
        if gates == "tokens differ":
            encoding.get_parameter("gate.weight")[:, 0] = 40.0
    q, k, v, x, pos = window(50)
    x[:, :, 0] = (torch.arange(50) % 13 != 7).float()  # with a weight of 40: forgets at every 13th token
    state = encoding.prepare(x)
    assert torch.isinf(torch.exp(-state)).any()
    close(attend(q, k, v, attention.Scoring(encoding, pos, state)), by_hand(q, k, v, wall_score(encoding, x)))


def test_wall_with_open_gates_is_no_encoding() -> None:
    encoding, none = layer_encodings("wall", {"gate_bias": "60"}, DIMS)[0], layer_encodings("none", {}, DIMS)[0]
    q, k, v, x, pos = window(40)
    actual = attention.attend(q, k, v, attention.Scoring(encoding, pos, encoding.prepare(x)))
    torch.testing.assert_close(actual, attention.attend(q, k, v, attention.Scoring(none, pos)), rtol=1e-5, atol=1e-6)
