"""A decoder by hand, in float64, that knows nothing of encodings or plans: it is told where every pair is."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.model import attention
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

VOCAB_SIZE, WIDTH, HEAD_DIM = 61, 32, 16


def model_of(spec: str, seq_len: int = 16, **sizes: Any) -> Model:
    """A model with weights so large that attention is far from uniform."""
    defaults = {"layers": 2, "heads": 2, "kv_heads": 2, "head_dim": HEAD_DIM, "ff_width": 48}
    config = ModelConfig(vocab_size=VOCAB_SIZE, width=WIDTH, **(defaults | sizes))
    parsed = specs.parse(spec)
    torch.manual_seed(0)
    model = Model(config, parsed.name, parsed.arguments, seq_len).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def tokens_of(length: int, rows: int = 1) -> Tensor:
    return torch.randint(0, VOCAB_SIZE, (rows, length), generator=torch.Generator().manual_seed(1))


def logits_of(model: Model, length: int, plan: Plan = PLAIN) -> Tensor:
    with torch.no_grad():
        return model(tokens_of(length), plan)[0]


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight


def _of_layer(rule: Any, layer: int) -> Any:
    return rule[layer] if isinstance(rule, dict) else rule


def logits_by_hand(
    model: Model,
    length: int,
    *,
    distance: Any = lambda i, j: i - j,
    frequencies: Any = (),
    amplitude: float = 1.0,
    bias: Callable[[Tensor, int, float], float] | None = None,
    factor: Any = lambda h, i: 1.0,
    embed: Callable[[Tensor], Tensor] = lambda x: x,
    read: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """Logits of tokens_of(length), [T, V], float64.

    distance(i, j) is how far apart a pair is taken to be, None where it is not seen; channels m and m + M are turned
    by frequencies[m], with cosines and sines times amplitude; bias(q, h, r) is added to a score and factor(h, i)
    multiplies the sum; embed changes the embedding and read what queries and keys are made of. A dict has a distance,
    frequencies, or a factor, for each layer.
    """
    config = model.config
    weights = {name: value.double() for name, value in model.state_dict().items()}
    x = embed(weights["embedding.weight"][tokens_of(length)[0]])
    for layer in range(config.layers):
        own = {key.removeprefix(f"blocks.{layer}."): value for key, value in weights.items()}
        normed = _normed(x, own["attention_norm.weight"])
        w_q, w_k, w_v = own["attention.qkv.weight"].split(
            [count * config.head_dim for count in (config.heads, config.kv_heads, config.kv_heads)]
        )
        place = _of_layer(distance, layer)
        where = [[place(i, j) if j <= i else None for j in range(length)] for i in range(length)]
        mixed = []
        for h in range(config.heads):
            g = h * config.kv_heads // config.heads
            q = read(normed) @ w_q.unflatten(0, (-1, config.head_dim))[h].T
            k = read(normed) @ w_k.unflatten(0, (-1, config.head_dim))[g].T
            scores = _scores(q, k, where, _of_layer(frequencies, layer), amplitude)
            for i in range(length):
                for j in range(i + 1):
                    r = where[i][j]
                    if bias is not None and r is not None:
                        scores[i, j] += bias(q[i], h, r)
                scores[i] *= _of_layer(factor, layer)(h, i)
            hidden = torch.tensor([[r is None for r in row] for row in where])
            mixed.append(
                scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
                @ (normed @ w_v.unflatten(0, (-1, config.head_dim))[g].T)
            )
        x = x + torch.cat(mixed, dim=-1) @ own["attention.out.weight"].T
        gate, up = (_normed(x, own["feed_forward_norm.weight"]) @ own["feed_forward.gate_up.weight"].T).chunk(2, dim=-1)
        x = x + (gate * gate.sigmoid() * up) @ own["feed_forward.down.weight"].T
    return _normed(x, weights["norm.weight"]) @ weights["head.weight"].T


def _scores(
    q: Tensor, k: Tensor, where: list[list[float | None]], frequencies: Sequence[float], amplitude: float
) -> Tensor:
    """Every query turned by its distance from the key, and the key by none, pair by pair."""
    turning = len(frequencies)
    channels = q.shape[-1]
    scores = q[:, 2 * turning :] @ k[:, 2 * turning :].T
    r = torch.tensor([[0.0 if d is None else d for d in row] for row in where], dtype=torch.float64)
    for m, w in enumerate(frequencies):
        cos, sin = amplitude * (r * w).cos(), amplitude * (r * w).sin()
        a, b = q[:, None, m], q[:, None, m + turning]
        scores = scores + (a * cos - b * sin) * (amplitude * k[None, :, m])
        scores = scores + (b * cos + a * sin) * (amplitude * k[None, :, m + turning])
    return scores / channels**0.5


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Model]:
    """model_of."""
    return model_of


@pytest.fixture(scope="session")
def logits() -> Callable[..., Tensor]:
    """logits_of."""
    return logits_of


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., Tensor]:
    """logits_by_hand."""
    return logits_by_hand


@pytest.fixture
def every_path(monkeypatch: pytest.MonkeyPatch) -> Callable[[Model, int, Plan], list[Tensor]]:
    """Logits in one chunk and in chunks of 7 queries, and with gradients on, which takes a path of its own."""

    def call(model: Model, length: int, plan: Plan) -> list[Tensor]:
        made = []
        for chunk in (128, 7):
            monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", chunk)
            made.append(logits_of(model, length, plan))
        return [*made, model(tokens_of(length), plan)[0].detach()]

    return call
