"""Kimi Delta Attention against its recurrence, token by token in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.encodings.base import Dims
from extrapolate.encodings.kda import BLOCK, FLOOR, KDA, delta_rule

B, H, K, D = 2, 4, 5, 7
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=7)


def made(scale: float = 0.5) -> KDA:
    """Its parameters are not where they start."""
    torch.manual_seed(0)
    encoding = KDA(DIMS)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return encoding


def inputs(length: int, kv_heads: int = H) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    q, k, v = (torch.randn(B, heads, length, K) for heads in (H, kv_heads, kv_heads))
    return q, k, v, torch.randn(B, length, D)


def mixed(encoding: KDA, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
    return encoding.mix(q, k, v, encoding.prepare(x)).detach()


def recurrence(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Tensor:
    """The state of one head, [K, K], token by token."""
    state, out = torch.zeros(k.shape[1], v.shape[1]).double(), []
    for t in range(len(q)):
        state = g[t].exp()[:, None] * state
        state = state + b[t] * torch.outer(k[t], v[t] - state.T @ k[t])
        out.append(state.T @ q[t] / math.sqrt(k.shape[1]))
    return torch.stack(out)


def by_hand(encoding: KDA, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """The layer's formulas, with the weights' names of the class and nothing else."""
    own = {name: value.double() for name, value in encoding.state_dict().items()}
    q, k, v, x = (tensor.double() for tensor in (q, k, v, x))
    length, rows = q.shape[2], []
    for b in range(B):
        for h in range(H):
            group = h * k.shape[1] // H
            three = []
            for place, given in enumerate((q[b, h], k[b, group], v[b, group])):
                taps = own["taps_HK4"][place * H + h]
                made = torch.zeros(length, K).double()
                for t in range(length):
                    for back in range(min(4, t + 1)):
                        made[t] += taps[:, back] * given[t - back]
                made = made * made.sigmoid()
                if place < 2:
                    made = made / (made.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt()
                three.append(made)
            channels = slice(h * K, (h + 1) * K)
            raw = x[b] @ own["forget_down.weight"].T @ own["forget_up.weight"][channels].T
            speed = own["log_speed_H"][h].exp()
            decay = (-speed * F.softplus(raw + own["forget_bias_HK"][h])).clamp(min=-10)
            write = (x[b] @ own["write.weight"][h]).sigmoid()
            out = recurrence(*three, decay, write)
            out = out / (out.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * own["scale_K"]
            opened = x[b] @ own["gate_down.weight"].T @ own["gate_up.weight"][channels].T
            rows.append(out * (opened + own["gate_up.bias"][channels]).sigmoid())
    return torch.stack(rows).view(B, H, length, K)


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
def test_it_is_the_recurrence(length: int) -> None:
    encoding, given = made(), inputs(length)
    torch.testing.assert_close(mixed(encoding, *given).double(), by_hand(encoding, *given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_query_heads_that_share_keys_have_convolutions_of_their_own(kv_heads: int) -> None:
    encoding, given = made(), inputs(21, kv_heads)
    torch.testing.assert_close(mixed(encoding, *given).double(), by_hand(encoding, *given), rtol=1e-4, atol=1e-5)


def rule(length: int, log_decay: Tensor) -> tuple[Tensor, ...]:
    torch.manual_seed(2)
    q, k, v = torch.randn(3, B, H, length, K)
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    return q, k, v, log_decay.expand(B, H, length, K), torch.rand(B, H, length)


@pytest.mark.parametrize("pattern", ["floor everywhere", "floor in turns", "hardly any"])
def test_extreme_gates_neither_overflow_nor_round_anything_away(pattern: str) -> None:
    length = 3 * BLOCK
    log_decay = torch.full((length, 1), FLOOR if pattern == "floor everywhere" else -1e-4)
    if pattern == "floor in turns":
        log_decay[::3] = FLOOR
    q, k, v, g, b = (x.requires_grad_() for x in rule(length, log_decay))
    out = delta_rule(q * K**-0.5, k, v, g, b)
    for i in range(B):
        for h in range(H):
            expected = recurrence(*(x[i, h].detach().double() for x in (q, k, v, g, b)))
            torch.testing.assert_close(out[i, h].detach().double(), expected, rtol=1e-4, atol=1e-5)
    out.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v, b))


def test_gradients_are_those_of_the_recurrence() -> None:
    q, k, v, g, b = (x[:1, :1].double().clone().requires_grad_() for x in rule(BLOCK + 3, torch.tensor(-0.3)))
    own = torch.autograd.grad(delta_rule(q * K**-0.5, k, v, g, b).square().sum(), (q, k, v, g, b))
    naive = torch.autograd.grad(recurrence(*(x[0, 0] for x in (q, k, v, g, b))).square().sum(), (q, k, v, g, b))
    for one, other in zip(own, naive, strict=True):
        torch.testing.assert_close(one, other)


def test_it_replaces_what_a_key_held() -> None:
    """With b = 1 and no forgetting, a key gives the value that was written to it last, whatever was there before."""
    key = F.normalize(torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0]), dim=0).expand(1, 1, 40, K)
    v = torch.randn(1, 1, 40, K)
    out = delta_rule(key, key, v, torch.zeros(1, 1, 40, K), torch.ones(1, 1, 40))
    torch.testing.assert_close(out, v, rtol=1e-4, atol=1e-4)


def test_without_writing_nothing_is_gathered() -> None:
    q, k, v, g, _ = rule(20, torch.tensor(-0.1))
    assert delta_rule(q, k, v, g, torch.zeros(B, H, 20)).abs().max() == 0


def test_gates_start_where_the_authors_code_has_them() -> None:
    torch.manual_seed(0)
    encoding = KDA(Dims(width=64, heads=8, head_dim=32, seq_len=64))
    speed = encoding.log_speed_H.exp()
    assert 1 <= speed.min() < speed.max() <= 16
    slow = F.softplus(encoding.forget_bias_HK)
    assert 0.00099 < slow.min() < 0.002
    assert 0.096 < slow.max() < 0.101
    assert slow.log().mean().item() == pytest.approx(math.log(0.01), abs=0.3)
    log_decay, write, gate = encoding.prepare(torch.zeros(1, 2, 64))
    torch.testing.assert_close(log_decay[0, :, 0], -speed[:, None] * slow)
    assert write.unique().tolist() == gate.unique().tolist() == [0.5]
