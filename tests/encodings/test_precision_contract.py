"""In how many bits every registered encoding works: float32, also under autocast, and bfloat16 where it stores so."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from extrapolate import specs
from extrapolate.encodings.base import Context, Dims, Encoding, scaled_product
from extrapolate.encodings.plan import PLAIN
from extrapolate.model import attention
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

DIMS = Dims(width=32, heads=2, head_dim=16, seq_len=512, layers=2)
# Positions and distances that bfloat16 cannot represent. One is fractional, as extensions make them.
POS_T = torch.tensor([0.0, 1.0, 37.0, 257.0, 300.25, 511.0])
POS_S = torch.tensor([0.0, 3.0, 129.0, 259.0])

Layers = Callable[[str, Dims], list[Encoding]]


def content() -> tuple[Tensor, Tensor, Tensor]:
    """The residual stream, float32 as it is under autocast too, and queries and keys of these positions."""
    torch.manual_seed(1)
    return torch.randn(2, len(POS_T), 32), torch.randn(2, 2, len(POS_T), 16), torch.randn(2, 2, len(POS_S), 16)


def context_of(state: Any = None) -> Context:
    hidden_TS = POS_S[None, :] > POS_T[:, None]
    return Context(POS_T, POS_S, slice(0, len(POS_T)), slice(0, len(POS_S)), hidden_TS, state)


def assert_same(under_autocast: Any, exact: Any) -> None:
    """Both are None, or every tensor is the same, bit for bit, and as wide."""
    if exact is None or under_autocast is None:
        assert exact is under_autocast
        return
    pairs = zip(under_autocast, exact, strict=True) if isinstance(exact, tuple) else [(under_autocast, exact)]
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def made_by(encoding: Encoding, state: Any) -> dict[str, Any]:
    """What the hooks return for queries and keys in bfloat16, as autocast's projections give them."""
    x_BTD, q_BHTK, _ = content()
    k_BHTK, every = q_BHTK.flip(-1), slice(0, len(POS_T))
    hidden_TT = POS_T[None, :] > POS_T[:, None]
    context = Context(POS_T, POS_T, every, every, hidden_TT, state)
    with torch.autocast("cpu", enabled=False):
        turned = [x.bfloat16() for x in encoding.rotate(q_BHTK, k_BHTK, POS_T, POS_T, state)]
        scores_BHTS = scaled_product(*(x.float() for x in turned)).masked_fill(hidden_TT, float("-inf"))
    made = {
        "positions": encoding.positions(torch.arange(6, dtype=torch.float32)),
        "rotate": encoding.rotate(q_BHTK, k_BHTK, POS_T, POS_T, state),
        "bias": encoding.bias(POS_T, POS_S),
        "scores": encoding.scores(*turned, context),
        "weights": encoding.weights(scores_BHTS, context),
        "mix": encoding.mix(*turned, k_BHTK.bfloat16(), state),
    }
    if not any(isinstance(part, nn.Linear | nn.Conv1d) for part in encoding.modules()):  # these are in bfloat16
        made |= {"attention_input": encoding.attention_input(x_BTD, POS_T)}
        made |= {} if encoding.dims.layer else {"embed": encoding.embed(x_BTD, POS_T)}
    return made


@torch.no_grad()
def test_autocast_changes_nothing_that_a_hook_makes(name: str, make_layers: Layers) -> None:
    for encoding in make_layers(name, DIMS):
        state = encoding.prepare(content()[0])
        exact = made_by(encoding, state)
        with torch.autocast("cpu", torch.bfloat16):
            under_autocast = made_by(encoding, state)
        for hook, value in exact.items():
            if hook in ("scores", "bias") and value is not None:
                hidden_TS = POS_S[None, :] > POS_T[:, None] if hook == "bias" else POS_T[None, :] > POS_T[:, None]
                value, under_autocast[hook] = (x.masked_fill(hidden_TS, 0.0) for x in (value, under_autocast[hook]))
            assert_same(under_autocast[hook], value)
        rotated = encoding.rotate(*(x.bfloat16() for x in content()[1:2] * 2), POS_T, POS_T, state)
        assert all(x.dtype == torch.bfloat16 for x in rotated)


def test_scores_of_bfloat16_queries_and_keys_are_float32(name: str, make_layers: Layers) -> None:
    for encoding in make_layers(name, DIMS):
        x_BTD, q_BHTK, k_BHSK = content()
        scores = encoding.scores(q_BHTK.bfloat16(), k_BHSK.bfloat16(), context_of(encoding.prepare(x_BTD)))
        assert scores is None or scores.dtype == torch.float32


SIZES = ModelConfig(vocab_size=61, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=48)


def test_stored_in_bfloat16_an_encodings_own_values_are_others(name: str) -> None:
    """Those of a wrapped base too. At distances that need more than 8 bits, so that every slope shows."""
    spec = specs.parse(name)
    torch.manual_seed(0)
    model = Model(SIZES, spec.name, spec.arguments, 16).eval()
    with torch.no_grad():
        for block in model.blocks:
            for parameter in block.encoding.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        tokens = torch.randint(0, 61, (1, min(320, model.encoding.max_length or 320)))
        exact, rounded = (model(tokens, model.resolve(PLAIN, storage)) for storage in ("fp32", "bf16"))
    # What reads no position has no numbers of its own, or a table, of which there is a test below.
    assert not (model.encoding.positional and torch.equal(exact, rounded))
    torch.testing.assert_close(rounded, exact, atol=0.05 * exact.abs().max().item(), rtol=0)


def representable(x: Tensor) -> bool:
    return torch.equal(x, x.bfloat16().float())


def test_what_is_stored_is_what_the_model_reads(name: str, make_layers: Layers) -> None:
    """All of an encoding's own values, not some step on the way to them: without content nothing else is left."""
    exact = make_layers(name, DIMS)[0]
    encoding = exact.rounded_to("bf16")
    nothing = torch.zeros(2, len(POS_T), 32)
    assert representable(encoding.embed(nothing, POS_T))
    assert representable(encoding.attention_input(nothing, POS_T)[0])
    kind = specs.parse(name).name
    if kind != "hype":  # there a norm multiplies them
        one = torch.eye(16)[:, None, None].expand(-1, 2, len(POS_T), -1)  # a channel at a time
        if kind == "pope":
            one = torch.full_like(one, 32.0)  # whose softplus it is; queries are also multiplied by the root of 2
        state = encoding.prepare(torch.zeros(len(one), len(POS_T), 32))
        turned = encoding.rotate(one, one, POS_T, POS_T.clone(), state)
        assert representable(turned[1])
        assert representable(turned[0]) or kind == "pope"
    q_BHTK, k_BHSK = torch.zeros(1, 2, len(POS_T), 16), torch.zeros(1, 2, len(POS_S), 16)
    if encoding.bias(POS_T, POS_S) is not None:
        scores_BHTS = attention.explicit_scores(q_BHTK, k_BHSK, encoding, context_of(), None)
        assert representable(scores_BHTS)


@pytest.mark.parametrize("name", ["shaw", "cope", "random:base=shaw"])
def test_a_table_that_queries_multiply_is_stored_too(name: str, make_layers: Layers) -> None:
    """As if it had been rounded by hand."""
    _, q_BHTK, k_BHSK = content()
    encoding, by_hand = (make_layers(name, DIMS)[0] for _ in range(2))
    with torch.no_grad():
        for parameter in by_hand.parameters():
            parameter.copy_(parameter.bfloat16().float())
    scores_BHTS = encoding.rounded_to("bf16").scores(q_BHTK, k_BHSK, context_of())
    assert_same(scores_BHTS, by_hand.scores(q_BHTK, k_BHSK, context_of()))


def stored(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def gapes(encoding: Any, q: Tensor, k: Tensor, r: Tensor, store: Callable[[Tensor], Tensor]) -> Tensor:
    """Of gates that read no content, whatever the parameters are."""
    at_least_0, landmark_H = nn.functional.softplus, encoding.key_bias_H.sigmoid()
    decay_H = at_least_0(encoding.gamma_H) * at_least_0(encoding.query_bias_H) * (1 - landmark_H)
    return scaled_product(q, k) - decay_H[:, None, None] * store(r / encoding.length)


def scale_invariants(encoding: Any, q: Tensor, k: Tensor, r: Tensor, store: Callable[[Tensor], Tensor]) -> Tensor:
    octaves = 2 * (r / encoding.tau).log1p()
    return store((octaves + 1).sqrt()) * scaled_product(q, k) - store(octaves)


def grapes(encoding: Any, q: Tensor, k: Tensor, r: Tensor, store: Callable[[Tensor], Tensor]) -> Tensor:
    slope_H = store(nn.functional.softplus(encoding.omega_H) * encoding.slope_H)
    v_HK, u_HK = (store(vector / vector.norm(dim=-1, keepdim=True)) for vector in (encoding.query_HK, encoding.key_HK))
    price_BHT, price_BHS = (
        nn.functional.softplus((x * unit_HK[:, None]).sum(dim=-1) / 4) for x, unit_HK in ((q, v_HK), (k, u_HK))
    )
    price_BHTS = price_BHT[..., None] + price_BHS[:, :, None]
    return scaled_product(q, k) - slope_H[:, None, None] * r * price_BHTS


def tapas(encoding: Any, q: Tensor, k: Tensor, r: Tensor, store: Callable[[Tensor], Tensor]) -> Tensor:
    turns = store(r**encoding.power) * scaled_product(q[..., 8:], k[..., 8:])
    return scaled_product(q[..., :8], k[..., :8]) * (2 * math.pi * turns).cos()


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "by_hand"), [("gape", gapes), ("scale-invariant", scale_invariants), ("grape", grapes), ("tapa", tapas)]
)
def test_what_scores_adds_or_multiplies_is_stored(name: str, by_hand: Any, make_layers: Layers) -> None:
    """Distances, slopes and directions, by the encoding's formula; what depends on content is computed exactly."""
    _, q_BHTK, k_BHSK = content()
    encoding, context = make_layers(name, DIMS)[0], context_of()
    if name == "gape":
        encoding.query_HK.zero_(), encoding.key_HK.zero_()
    r_TS = (POS_T[:, None] - POS_S).clamp(min=0)
    exact, rounded = (
        x.scores(q_BHTK, k_BHSK, context).masked_fill(context.hidden_TS, 0)
        for x in (encoding, encoding.rounded_to("bf16"))
    )
    for found, store in ((exact, lambda x: x), (rounded, stored)):
        expected = by_hand(encoding, q_BHTK, k_BHSK, r_TS, store).masked_fill(context.hidden_TS, 0)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_dapes_base_is_stored_before_it_is_added(make_layers: Layers) -> None:
    for base in ("kerple", "fire", "t5"):
        encoding = make_layers(f"dape:base={base}", DIMS)[0]
        with torch.no_grad():
            for parameter in encoding.network.parameters():
                parameter.zero_()
        q_BHTK, k_BHSK = torch.zeros(1, 2, len(POS_T), 16), torch.zeros(1, 2, len(POS_S), 16)
        exact, rounded = (
            encoding.rounded_to(storage).scores(q_BHTK, k_BHSK, context_of()) for storage in ("fp32", "bf16")
        )
        assert torch.equal(rounded, exact.bfloat16().float())
        assert not torch.equal(rounded, exact)


def test_a_precision_reaches_every_base() -> None:
    """However deep."""
    encoding = layer_encodings("random", {"base": "dape:base=kerple"}, DIMS)[0].rounded_to("bf16")
    assert [encoding.storage, encoding.inner.storage, encoding.inner.inner.storage] == ["bf16"] * 3
