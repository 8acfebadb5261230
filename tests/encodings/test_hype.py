"""HyPE's recurrence token by token in float64, and its layers with attention."""

import math

import pytest
import torch
from torch import Tensor

from extrapolate.encodings import retention
from extrapolate.encodings.base import Dims
from extrapolate.encodings.hype import HyPE
from extrapolate.encodings.plan import PLAIN
from extrapolate.extensions import stack
from extrapolate.model.attention import ResolvedPlan, Scoring, attend
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

B, H, T, K, D, THETA = 2, 3, 13, 4, 7, 50.0
SLOPES = (2**-4, 2**-8, 2**-2)  # ALiBi's of 3 heads
SIZES = ModelConfig(vocab_size=31, width=D, layers=4, heads=H, kv_heads=1, head_dim=K, ff_width=9)


def made(layer: int = 0, **arguments: float) -> HyPE:
    """Its parameters are not where they start."""
    torch.manual_seed(0)
    encoding = HyPE(Dims(width=D, heads=H, head_dim=K, seq_len=7, layer=layer, layers=4), theta=THETA, **arguments)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoding


def inputs(kv_heads: int = H) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    q, k, v = (torch.randn(B, heads, T, K) for heads in (H, kv_heads, kv_heads))
    return q, k, v, torch.randn(B, T, D)


def normed(x: Tensor, scale: Tensor) -> Tensor:
    return x.double() / (x.double().square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() * scale.double()


def turned(x: Tensor, place: int) -> Tensor:
    half = K // 2
    pairs = torch.complex(x[:half], x[half:])
    angle = place * THETA ** (-2 * torch.arange(half).double() / K)
    pairs = pairs * torch.polar(torch.ones(half).double(), angle)
    return torch.cat([pairs.real, pairs.imag])


@pytest.mark.parametrize("block", [64, 4])
@pytest.mark.parametrize("kv_heads", [3, 1])
def test_it_is_the_recurrence(block: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BLOCK", block)
    encoding, (q, k, v, x), pos = made(), inputs(kv_heads), torch.arange(float(T))
    state = encoding.prepare(x)
    own = encoding.mix(*encoding.rotate(q, k, pos, pos, state), v, state).detach()
    weights = {name: value.double() for name, value in encoding.state_dict().items()}
    for b in range(B):
        memory = torch.zeros(H, K, K).double()
        for t in range(T):
            gathered = []
            for h in range(H):
                g = h * kv_heads // H
                key = turned(normed(k[b, g, t], weights["key_norm.weight"]), t)
                query = turned(normed(q[b, h, t], weights["query_norm.weight"]), t)
                memory[h] = math.exp(-SLOPES[h]) * memory[h] + torch.outer(key, v[b, g, t].double())
                gathered.append(memory[h].T @ query / math.sqrt(K))
            opened = (weights["gate.weight"] @ x[b, t].double()).sigmoid()
            expected = (normed(torch.cat(gathered), weights["norm.weight"]) * opened).view(H, K)
            torch.testing.assert_close(own[b, :, t].double(), expected, rtol=1e-4, atol=1e-5)


def test_layers_with_attention_normalise_and_do_not_rotate() -> None:
    encoding, (q, k, v, x), pos = made(layer=3), inputs(), torch.arange(float(T))
    assert encoding.prepare(x) is None
    assert encoding.mix(q, k, v, None) is None
    turned_q, turned_k = encoding.rotate(q, k, pos, pos + 5, None)
    with torch.no_grad():
        mixed = attend(turned_q, turned_k, v, Scoring(encoding, pos))
    for b, h, i in ((0, 0, 0), (1, 2, 12), (0, 1, 6)):
        query = normed(q[b, h, i], encoding.query_norm.weight.detach())
        keys = normed(k[b, h, : i + 1], encoding.key_norm.weight.detach())
        expected = (keys @ query / math.sqrt(K)).softmax(dim=0) @ v[b, h, : i + 1].double()
        torch.testing.assert_close(mixed[b, h, i].double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("every", "layers", "attending"),
    [(None, 4, [3]), (None, 8, [3, 7]), (2, 4, [1, 3]), (None, 2, [1]), (1, 2, [0, 1]), (3, 5, [2])],
)
def test_which_layers_attend(every: int | None, layers: int, attending: list[int]) -> None:
    dims = Dims(width=D, heads=H, head_dim=K, seq_len=7, layers=layers)
    found = layer_encodings("hype", {} if every is None else {"every": every}, dims)
    assert [layer for layer, encoding in enumerate(found) if encoding.attends()] == attending


@torch.no_grad()
def test_a_window_and_log_n_reach_the_layers_with_attention_alone() -> None:
    torch.manual_seed(0)
    model = Model(SIZES, "hype", {"theta": THETA}, 7).eval()
    assert stack.applicable(model) == ["lm-infinite", "log-n", "sinks", "temperature", "window"]
    setting = model.resolve(stack.parse("window:size=3").plan(model.encoding, 7, 20))
    assert [encoding.window for encoding in setting.encodings] == [None, None, None, 3]
    tokens = torch.randint(31, (1, 20), generator=torch.Generator().manual_seed(1))
    for text in ("window:size=3", "log-n", "sinks"):
        plan = stack.parse(text).plan(model.encoding, 7, 20)
        plain, extended = (outputs(model, tokens, model.resolve(given)) for given in (PLAIN, plan))
        same = [torch.equal(one, other) for one, other in zip(plain, extended, strict=True)]
        assert same == [True, True, True, False], text


def outputs(model: Model, tokens: Tensor, setting: ResolvedPlan) -> list[Tensor]:
    """What each block gives."""
    found: list[Tensor] = []
    handles = [block.register_forward_hook(lambda _m, _i, output: found.append(output)) for block in model.blocks]
    model(tokens, setting)
    for handle in handles:
        handle.remove()
    return found


def test_the_factor_of_queries_at_test() -> None:
    """With an offset, log-n is HyPE's: ln(i + a) / ln a, i from 0, at every length."""
    model = Model(SIZES, "hype", {}, 7)
    for length in (5, 40):
        plan = stack.parse("log-n:offset=20").plan(model.encoding, 7, length)
        expected = [math.log(i + 20) / math.log(20) for i in range(length)]
        assert plan.query_scale(length, torch.device("cpu"))[0].tolist() == pytest.approx(expected, rel=1e-6)
    assert stack.parse("log-n:offset=20").label() == "log-n(20)"
