"""What combines with any encoding, against a decoder written from the papers' formulas, and wherever a model is used.

The decoder computes in float64, number by number. Shapes as in llama.py; one window at a time.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.contract.causality import check_causality
from extrapolate.encodings.base import Context, Dims, Encoding
from extrapolate.encodings.none import NoPE
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.extensions import stack
from extrapolate.interop.export import needs_whole_text
from extrapolate.interop.generation import Kept, generated
from extrapolate.model import attention, canon
from extrapolate.model.attention import Maps, Scoring, attend
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

L, V, T = 8, 43, 13
SIZES: dict[str, Any] = {
    "vocab_size": V, "width": 20, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 6, "ff_width": 14,
}  # fmt: skip
NAMES = ("sinks", "output_gate", "differential", "canon")
ALL = "all, with norms and biases"
SETTINGS: dict[str, dict[str, bool]] = {name: {name: True} for name in NAMES} | {
    ALL: dict.fromkeys((*NAMES, "qk_norm", "qkv_bias"), True)
}
FADING = f"{Path(__file__).parents[2]}/examples/my_state.py:Fading"


def make(settings: dict[str, bool], encoding: str = "rope", **sizes: Any) -> Model:
    """A model whose parameters are far from where they start: scores, gates and logits differ from token to token."""
    torch.manual_seed(0)
    model = Model(ModelConfig(**SIZES | settings | sizes), encoding, {}, L).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".encoding." not in name:
                parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 2 else 0.5))
    return model


def tokens_of(length: int, rows: int = 3) -> Tensor:
    return torch.randint(0, V, (rows, length), generator=torch.Generator().manual_seed(1))


def naive_logits(model: Model, tokens_T: list[int], encoding: str) -> Tensor:
    """The logits of one window, [T, V], float64. encoding: rope or alibi."""
    c, weights = model.config, {name: x.double() for name, x in model.state_dict().items()}
    length = len(tokens_T)

    def normalised(x_TC: Tensor, name: str) -> Tensor:
        return torch.stack([x / math.sqrt(sum(x**2) / len(x) + c.norm_eps) for x in x_TC]) * weights[name]

    def normed_by_head(x_TC: Tensor, name: str) -> Tensor:
        return torch.cat([normalised(x_TK, name) for x_TK in x_TC.split(c.head_dim, dim=1)], dim=1)

    def convolved(x_TC: Tensor, name: str) -> Tensor:
        new_TC, weight_C4 = x_TC.clone(), weights[f"{name}.weight_C4"]
        for t in range(length):
            for back in range(min(4, t + 1)):
                new_TC[t] += weight_C4[:, 3 - back] * x_TC[t - back]
        return new_TC

    def turned(x_K: Tensor, place: int) -> Tensor:
        if encoding != "rope":
            return x_K
        half, new_K = len(x_K) // 2, x_K.clone()
        for m in range(half):
            angle = place * 10_000 ** (-m / half)
            new_K[m] = x_K[m] * math.cos(angle) - x_K[m + half] * math.sin(angle)
            new_K[m + half] = x_K[m + half] * math.cos(angle) + x_K[m] * math.sin(angle)
        return new_K

    def gathered(q_TK: Tensor, k_TK: Tensor, v_TK: Tensor, layer: str, head: int) -> Tensor:
        """What one head's queries take from the values, [T, K]."""
        mixed, qs, ks = [], *([turned(x, place) for place, x in enumerate(x_TK)] for x_TK in (q_TK, k_TK))
        for i in range(length):
            exps = []
            for j in range(i + 1):
                score = float(qs[i] @ ks[j]) / math.sqrt(c.head_dim)
                slope = 2.0 ** (-8 * (head + 1) / c.heads) if encoding == "alibi" else 0.0
                exps.append(math.exp(score - slope * (i - j)))
            sink = math.exp(weights[f"{layer}.attention.sink_H"][head]) if c.sinks else 0.0
            mixed.append(sum(e / (sum(exps) + sink) * v for e, v in zip(exps, v_TK, strict=False)))
        return torch.stack(mixed)

    def projected(a_TD: Tensor, name: str) -> Tensor:
        product = a_TD @ weights[f"{name}.weight"].T
        return product + weights[f"{name}.bias"] if c.qkv_bias else product

    def attended(a_TD: Tensor, layer: str) -> Tensor:
        own = f"{layer}.attention"
        q, k, v = projected(a_TD, f"{own}.qkv").split(
            [n * c.head_dim for n in (c.heads, c.kv_heads, c.kv_heads)], dim=1
        )
        second = projected(a_TD, f"{own}.second") if c.differential else q
        if c.qk_norm:
            q, second = (normed_by_head(x, f"{own}.q_norm.weight") for x in (q, second))
            k = normed_by_head(k, f"{own}.k_norm.weight")
        if c.canon:
            all_TC = convolved(torch.cat([q, *([second] if c.differential else []), k, v], dim=1), f"{own}.canon")
            q, *others, k, v = all_TC.split(
                [x.shape[1] for x in (q, *([second] if c.differential else []), k, v)], dim=1
            )
            second = others[0] if others else q
        heads = []
        for h in range(c.heads):
            of_h, of_g = (slice(n * c.head_dim, (n + 1) * c.head_dim) for n in (h, h * c.kv_heads // c.heads))
            q_TK, second_TK, k_TK = q[:, of_h], second[:, of_h], k[:, of_g]
            mixed_TK = gathered(q_TK, k_TK, v[:, of_g], layer, h)
            if c.differential:
                share_T = 1 / (1 + (-a_TD @ weights[f"{own}.share.weight"][h]).exp())
                mixed_TK = mixed_TK - share_T[:, None] * gathered(second_TK, k_TK, v[:, of_g], layer, h)
            heads.append(mixed_TK)
        mixed_TC = torch.cat(heads, dim=1)
        if c.output_gate:
            mixed_TC = mixed_TC / (1 + (-a_TD @ weights[f"{own}.gate.weight"].T).exp())
        return mixed_TC @ weights[f"{own}.out.weight"].T

    def fed(a_TD: Tensor, layer: str) -> Tensor:
        gate_up = a_TD @ weights[f"{layer}.feed_forward.gate_up.weight"].T
        gate, up = (convolved(gate_up, f"{layer}.feed_forward.canon") if c.canon else gate_up).chunk(2, dim=1)
        return (gate / (1 + (-gate).exp()) * up) @ weights[f"{layer}.feed_forward.down.weight"].T

    x_TD = weights["embedding.weight"][tokens_T]
    for layer in (f"blocks.{n}" for n in range(c.layers)):
        for name, part in (("attention", attended), ("feed_forward", fed)):
            a_TD = normalised(x_TD, f"{layer}.{name}_norm.weight")
            x_TD = x_TD + part(convolved(a_TD, f"{layer}.{name}_canon") if c.canon else a_TD, layer)
    return normalised(x_TD, "norm.weight") @ weights["head.weight"].T


@pytest.mark.parametrize("encoding", ["rope", "alibi"])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_path_computes_the_formula(name: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = make(SETTINGS[name], encoding), tokens_of(T)
    with torch.no_grad():
        expected = torch.stack([naive_logits(model, row, encoding) for row in tokens.tolist()]).float()
        without = Model(ModelConfig(**SIZES), encoding, {}, L).eval()
        without.load_state_dict(model.state_dict(), strict=False)
        assert (without(tokens) - expected).abs().max() > 0.1
        whole = model(tokens)
        monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 5)
        chunked = model(tokens)
        of_last = [model.head(model.hidden(tokens, PLAIN, first)) for first in range(1, T)]
    monkeypatch.setattr(attention, "EXPLICIT_UP_TO", 0)
    for found in (whole, chunked, model(tokens).detach()):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for first, found in enumerate(of_last, 1):
        torch.testing.assert_close(found, expected[:, first:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "encoding"), [*((name, "rope") for name in NAMES), *((ALL, one) for one in ("fox", "expe", "rnope"))]
)
def test_no_token_sees_a_later_one(name: str, encoding: str) -> None:
    check_causality(make(SETTINGS[name], encoding), Path("mine.py"), 4)


@pytest.mark.parametrize("name", SETTINGS)
def test_pretended_positions_that_are_the_real_ones_change_nothing(name: str) -> None:
    """ReRoPE counts distances from `window` on as `window`: none are longer than 2 L - 1."""
    model, tokens = make(SETTINGS[name]), tokens_of(2 * L)
    near, far = (stack.parse(f"rerope:window={window}").plan(model.encoding, L, 2 * L) for window in (2 * L - 1, 3))
    assert near.pairs is not None
    with torch.no_grad():
        plain = model(tokens)
        torch.testing.assert_close(model(tokens, near), plain, rtol=1e-4, atol=1e-4)
        assert (model(tokens, far) - plain).abs().max() > 1e-2


@pytest.mark.parametrize(("name", "encoding"), [*((name, "rope") for name in SETTINGS), (ALL, "fox"), (ALL, "expe")])
def test_a_text_goes_on_from_a_cache_as_without(name: str, encoding: str) -> None:
    model, tokens = make(SETTINGS[name], encoding), tokens_of(T, rows=2)
    whole_text = needs_whole_text(model, ())
    assert whole_text == model.config.canon
    text = generated(model, tokens[0, :5].tolist(), 6, model.resolve(PLAIN), lambda new: False)
    longer = [*tokens[0, :5].tolist(), *text]
    with torch.no_grad():
        assert text == model(torch.tensor([longer]))[0, 4:-1].argmax(-1).tolist()
        if not whole_text:
            kept, parts = Kept(), []
            for part in tokens.split([4, 1, 7, 1], dim=1):
                parts.append(model.hidden(part, PLAIN, cache=kept))
                kept.length += part.shape[1]
            torch.testing.assert_close(torch.cat(parts, dim=1), model.hidden(tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SETTINGS)
def test_other_weights_start_as_without(name: str) -> None:
    def drawn(settings: dict[str, bool]) -> tuple[dict[str, Tensor], Tensor]:
        torch.manual_seed(0)
        return Model(ModelConfig(**SIZES | settings), "rope", {}, L).state_dict(), torch.randn(3)

    (plain, after), (other, after_other) = drawn({}), drawn(SETTINGS[name])
    assert len(other) > len(plain)
    assert all(torch.equal(other[key], weight) for key, weight in plain.items())
    assert torch.equal(after, after_other)
    matrices = [other[key] for key in other.keys() - plain.keys() if not key.endswith(("bias", "norm.weight"))]
    assert all(weight.std() > 0 for weight in matrices)
    assert len({float(weight.flatten()[0]) for weight in matrices}) == len(matrices)


@pytest.mark.parametrize("name", SETTINGS)
def test_in_bfloat16_the_numbers_are_about_the_same(name: str) -> None:
    model, tokens = make(SETTINGS[name]), tokens_of(T + 1)
    exact = model.loss(tokens[:, :-1], tokens[:, 1:])
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.loss(tokens[:, :-1], tokens[:, 1:])
    rounded.backward()
    assert rounded.item() == pytest.approx(exact.item(), abs=0.1)
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_weights_start_as_in_the_sources() -> None:
    torch.manual_seed(0)
    settings = dict.fromkeys((*NAMES, "qkv_bias"), True)
    block: Any = Model(
        ModelConfig(vocab_size=9, width=256, heads=256, kv_heads=256, head_dim=4, **settings), "rope", {}, L
    ).blocks[0]
    own, feed_forward = block.attention, block.feed_forward
    assert own.sink_H.std().item() == pytest.approx(0.02, rel=0.2)
    for matrix in (own.gate, own.second, own.share):
        assert matrix.weight.std().item() == pytest.approx(0.25 / 16, rel=0.05)
    assert not own.second.bias.any()
    for layer in (block.attention_canon, own.canon, block.feed_forward_canon, feed_forward.canon):
        assert layer.weight_C4.std().item() == pytest.approx(0.2887, rel=0.05)  # of torch's Conv1d
        assert layer.weight_C4.abs().max() <= 0.5


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_a_convolution_has_the_gradients_of_torchs_own(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of windows, of which the last is smaller."""
    monkeypatch.setattr(canon, "CHUNK_ELEMENTS", 2 * length * 6)
    torch.manual_seed(0)
    layer, x_BTC = canon.Canon(6).double(), torch.randn(5, length, 6, dtype=torch.float64, requires_grad=True)
    layer.draw()
    expected = x_BTC.mT + F.conv1d(F.pad(x_BTC.mT, (3, 0)), layer.weight_C4[:, None], groups=6)
    torch.testing.assert_close(layer(x_BTC), expected.mT)
    assert torch.autograd.gradcheck(canon._Convolution.apply, (x_BTC, layer.weight_C4))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # which takes the formula apart itself
    torch.testing.assert_close(layer(x_BTC), expected.mT)


class Own(NoPE):
    """The softmax, as weights of an encoding's own."""

    def weights(self, scores_BHTS: Tensor, context: Context) -> Tensor:
        assert scores_BHTS.shape[-2:] == context.hidden_TS.shape
        assert len(context.pos_S) == scores_BHTS.shape[-1]
        assert torch.equal(context.pos_S.diff(), torch.ones_like(context.pos_S[1:]))
        assert (scores_BHTS.isinf() == context.hidden_TS).all()
        return scores_BHTS.softmax(dim=-1)


@pytest.mark.parametrize("observed", [False, True])
def test_a_sink_is_a_key_before_the_first_to_weights_of_an_encodings_own(observed: bool) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, T, 6).unbind()
    pos, sink_H, dims = torch.arange(float(T)), torch.tensor([-1.0, 0.5, 3.0, 0.0]), Dims(20, 4, 6, L)

    def found(encoding: Encoding, maps: Maps | None) -> Tensor:
        return attend(q, k, v, Scoring(encoding, pos, queries_per_chunk=5, observer=maps, sink_H=sink_H))

    maps = [Maps(T) if observed else None for _ in range(2)]
    own, usual = (found(cls(dims), one) for cls, one in zip((Own, NoPE), maps, strict=True))
    torch.testing.assert_close(own, usual)
    for one in maps:
        if one is not None:
            torch.testing.assert_close(one.weights[0] @ v, usual)
            assert (one.weights[0].sum(dim=-1) < 1).all()


def test_a_sink_that_takes_nothing_changes_nothing_and_one_that_takes_all_leaves_nothing() -> None:
    model, tokens = make({"sinks": True}), tokens_of(T)
    plain = Model(ModelConfig(**SIZES), "rope", {}, L).eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    gathered: list[Tensor] = []
    model.blocks[0].attention.register_forward_hook(lambda *arguments: gathered.append(arguments[-1]))
    with torch.no_grad():
        for score in (-1e4, 1e4):
            for block in model.blocks:
                block.attention.sink_H.fill_(score)
            logits = model(tokens)
            if score < 0:
                torch.testing.assert_close(logits, plain(tokens))
    assert gathered[0].abs().max() > 0.1
    assert gathered[1].abs().max() == 0


@pytest.mark.parametrize("encoding", ["stick-breaking", "asentmax"])
def test_a_sink_beside_weights_of_the_package(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one chunk and in several; one that takes nothing changes nothing."""
    model, plain, x_BT = make({"sinks": True}, encoding), make({}, encoding), tokens_of(T)
    with torch.no_grad():
        whole_BTV = model(x_BT)
        for block in model.blocks:
            block.attention.sink_H.fill_(-1e4)
        plain.load_state_dict(model.state_dict(), strict=False)
        torch.testing.assert_close(model(x_BT), plain(x_BT), rtol=1e-4, atol=1e-5)
        # Stick-breaking drops what no key takes, whether a sink takes it or not.
        assert torch.allclose(whole_BTV, plain(x_BT), atol=1e-3) == (encoding == "stick-breaking")
        monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 5)
        torch.testing.assert_close(model(x_BT), plain(x_BT), rtol=1e-4, atol=1e-5)


def test_no_temperature_scales_a_sink() -> None:
    """Those of extensions, and SSMax, multiply scores: at 0, the sink's weight is e^s against 1 for each key."""
    q, v = torch.randn(2, 1, 2, T, 6).unbind()
    pos, sink_H, scale = torch.arange(float(T)), torch.tensor([0.7, -2.0]), torch.zeros(1, T)
    found = attend(q, q, v, Scoring(NoPE(Dims(12, 2, 6, L)), pos, scale_HT=scale, sink_H=sink_H))
    keys_T1 = torch.arange(1.0, T + 1)[:, None]
    torch.testing.assert_close(found, v.cumsum(dim=2) / (keys_T1 + sink_H.exp()[:, None, None]))


@pytest.mark.parametrize("encoding", ["rope", "expe", FADING])
def test_a_gate_reads_what_attention_does_before_positions_are_written(encoding: str) -> None:
    """It multiplies what is gathered, also what a layer has in place of attention."""
    model = make({"output_gate": True}, encoding)
    own: Any = model.blocks[0].attention
    x_BTD, pos_T = torch.randn(2, T, 20), torch.arange(float(T))
    own.out = torch.nn.Identity()
    with torch.no_grad():
        gated = own(x_BTD, model.encoding, pos_T, first_wanted=4)
        gate_BTC = (x_BTD[:, 4:] @ own.gate.weight.T).sigmoid()
        own.gate = None
        torch.testing.assert_close(gated, own(x_BTD, model.encoding, pos_T, first_wanted=4) * gate_BTC)


@pytest.mark.parametrize("encoding", ["rope", "expe", "kerple", "fox", "cope"])
def test_equal_queries_take_half_of_what_they_gather_away(encoding: str) -> None:
    """With the first queries' weights, and at a share of 1/2, whatever the encoding makes of queries."""
    model = make({"differential": True, "qk_norm": True, "qkv_bias": True}, encoding)
    block: Any = model.blocks[0]
    own, x_BTD, pos_T = block.attention, torch.randn(2, T, 20), torch.arange(float(T))
    with torch.no_grad():
        own.second.weight.copy_(own.qkv.weight[:24])
        own.second.bias.copy_(own.qkv.bias[:24])
        own.share.weight.zero_()
        maps, alone = Maps(T), Maps(T)
        found = own(x_BTD, model.encoding, pos_T, first_wanted=2, observer=maps)
        own.second.weight.add_(1.0)
        assert (own(x_BTD, model.encoding, pos_T, first_wanted=2) - found).abs().max() > 0.1
        own(x_BTD, model.encoding, pos_T, first_wanted=2, observer=maps)
        own.second = own.share = None
        torch.testing.assert_close(found, own(x_BTD, model.encoding, pos_T, first_wanted=2, observer=alone) / 2)
    assert torch.equal(maps.weights[0], alone.weights[0])  # an observer is shown the first queries' attention


@pytest.mark.parametrize("name", ["sinks", "differential"])
def test_a_change_of_attention_is_refused_where_there_is_none(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name}: a change of attention, and Fading has none in layer 0$"):
        Model(ModelConfig(**SIZES | SETTINGS[name]), FADING, {}, L)
