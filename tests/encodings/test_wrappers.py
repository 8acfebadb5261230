"""Encodings around another: randomised positions, DAPE, and what any wrapper passes on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding, encodings
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.wrapper import Wrapper
from extrapolate.model import attention
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

L = 16
DIMS = Dims(width=32, heads=2, head_dim=16, seq_len=L, layers=3)
SIZES = ModelConfig(vocab_size=31, width=32, layers=3, heads=2, kv_heads=2, head_dim=16, ff_width=48)


def index(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def layers_of(spec: str, dims: Dims = DIMS) -> list[Encoding]:
    parsed = specs.parse(spec)
    return layer_encodings(parsed.name, parsed.arguments, dims)


def inner(encoding: Encoding) -> Encoding:
    """What is wrapped."""
    base = encoding.get_submodule("inner")
    assert isinstance(base, Encoding)
    return base


def model_of(spec: str) -> Model:
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    return Model(SIZES, parsed.name, parsed.arguments, L)


def tokens(length: int) -> Tensor:
    return torch.randint(0, SIZES.vocab_size, (2, length), generator=torch.Generator().manual_seed(1))


class TestDAPEBase:
    @pytest.mark.parametrize("base", ["none", "rope", "learned", "expe", "shaw", "cope", "fox", "wall", "dape"])
    def test_a_base_without_a_bias_is_refused(self, base: str) -> None:
        with pytest.raises(ValueError, match=r"dape does not apply to .*bias"):
            layers_of(f"dape:base={base}")

    @pytest.mark.parametrize("base", ["alibi", "kerple", "fire", "t5", "sandwich"])
    def test_a_bias_is_enough(self, base: str) -> None:
        assert inner(layers_of(f"dape:base={base}")[0]).display == encodings[base].display

    @pytest.mark.parametrize(
        ("spec", "shared"),
        [
            ("dape:base=kerple", {"p_H", "a_H"}),
            ("dape:base=t5", {"table_RH"}),
            ("dape:base=fire", set()),
            ("random:base=t5", {"table_RH"}),
            ("random:base=(dape:base=kerple)", {"p_H", "a_H"}),
        ],
    )
    def test_layers_share_what_those_of_the_base_share(self, spec: str, shared: set[str]) -> None:
        first, *others = layers_of(spec)
        for layer in others:
            same = {
                name.rpartition(".")[2]
                for name, parameter in layer.named_parameters()
                if parameter is first.get_parameter(name)
            }
            assert same == shared

    def test_the_model_trains_shared_parameters_once(self) -> None:
        alone, together = (len(list(model_of(f"dape:base={base}").parameters())) for base in ("alibi", "kerple"))
        assert together == alone + 2


class Plain(Wrapper):
    """A wrapper that changes nothing."""

    display = "Plain"
    source = "ours"

    def __init__(self, dims: Dims, *, base: str) -> None:
        super().__init__(dims, base)


class Whole(Encoding):
    """Uses every hook, and writes down which."""

    display = "Whole"
    source = "ours"
    caption = "Whole: ours"
    max_length = 50
    accepts = frozenset({"values"})

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.window = 5
        self.asked: list[str] = []

    def positions(self, index_T: Tensor) -> Tensor:
        self.asked.append("positions")
        return index_T + 1

    def embed(self, x_BTD: Tensor, pos_T: Tensor) -> Tensor:
        self.asked.append("embed")
        return x_BTD * 2

    def attention_input(self, x_BTD: Tensor, pos_T: Tensor) -> tuple[Tensor, Tensor]:
        self.asked.append("attention_input")
        return x_BTD + 1, x_BTD

    def prepare(self, x_BTD: Tensor) -> Any:
        self.asked.append("prepare")
        return "made"

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        self.asked.append("rotate")
        return k_BGSK, q_BHTK

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor | None:
        self.asked.append("bias")
        return pos_T[:, None] - pos_S

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Any) -> Tensor | None:
        self.asked.append("scores")
        return q_BHTK

    def weights(self, scores_BHTS: Tensor, context: Any) -> Tensor | None:
        self.asked.append("weights")
        return scores_BHTS + 2

    def mix(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, state: Any) -> Tensor | None:
        self.asked.append("mix")
        return v_BGTK

    def begin_step(self, done: float) -> None:
        self.asked.append(f"begin_step {done}")

    def extended(self, plan: Plan) -> "Whole":
        self.asked.append("extended")
        return self.copy_with(window=9)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Plain, Whole]]:
    """A wrapper around Whole, and Whole."""
    monkeypatch.setitem(encodings._classes, "whole", Whole)

    def make() -> tuple[Plain, Whole]:
        wrapper = Plain(DIMS, base="whole")
        base = inner(wrapper)
        assert isinstance(base, Whole)
        return wrapper, base

    return make


class TestAnyWrapper:
    def test_every_hook_is_the_base_s(self, whole: Callable[[], tuple[Plain, Whole]]) -> None:
        wrapper, base = whole()
        q, k, x, pos = torch.randn(1), torch.randn(1), torch.randn(3), index(4)
        assert torch.equal(wrapper.positions(pos), pos + 1)
        assert torch.equal(wrapper.embed(x, pos), x * 2)
        read, values = wrapper.attention_input(x, pos)
        assert torch.equal(read, x + 1)
        assert values is x
        assert wrapper.prepare(x) == "made"
        assert wrapper.rotate(q, k, pos, pos, "made") == (k, q)
        assert wrapper.bias(pos, pos).shape == (4, 4)
        assert wrapper.scores(q, k, None) is q
        assert torch.equal(wrapper.weights(q, None), q + 2)
        assert wrapper.mix(q, k, x, "made") is x
        wrapper.begin_step(0.5)
        hooks = ["positions", "embed", "attention_input", "prepare", "rotate", "bias", "scores", "weights", "mix"]
        assert base.asked == [*hooks, "begin_step 0.5"]
        assert (wrapper.window, wrapper.max_length, wrapper.accepts) == (5, 50, frozenset({"values"}))
        assert wrapper.caption == "Whole: ours"

    def test_a_plan_reaches_the_base_and_leaves_the_wrapper_as_it_was(
        self, whole: Callable[[], tuple[Plain, Whole]]
    ) -> None:
        wrapper, base = whole()
        base.asked.clear()
        assert inner(wrapper.extended(Plan(value_scale=0.5))).window == 9
        assert base.asked == ["extended"]
        assert inner(wrapper) is base
        assert base.window == 5

    @pytest.mark.parametrize("name", sorted({*encodings.names()} - {"random", "pose", "rfs", "dape"}))
    def test_a_model_is_the_same_with_its_encoding_wrapped(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 7)
        model = model_of(name).eval()
        x = tokens(L)
        with torch.no_grad():
            plain = model(x)
            for block in model.blocks:
                wrapper = Plain(block.encoding.dims, base=name)
                wrapper.load_state_dict({f"inner.{key}": value for key, value in block.encoding.state_dict().items()})
                block.encoding = wrapper.eval()
            assert torch.equal(model(x), plain)

    def test_values_are_scaled_inside_a_wrapper(self) -> None:
        encoding = layers_of("random:base=expe,max=64")[0]
        x, pos = torch.randn(1, 9, 32), index(9)
        whole_values, _ = encoding.attention_input(x, pos)
        halved, _ = encoding.extended(Plan(value_scale=0.5)).attention_input(x, pos)
        torch.testing.assert_close(halved[..., :4], whole_values[..., :4] / 2)
        assert torch.equal(halved[..., 4:], x[..., 4:])


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the fused kernel is called with."""
    calls: list[dict[str, Any]] = []
    original = F.scaled_dot_product_attention

    def spy(*arguments: Any, **options: Any) -> Tensor:
        calls.append(options)
        return original(*arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return calls


class TestPath:
    @pytest.mark.parametrize("base", ["rope", "learned", "sinusoidal", "expe"])
    def test_a_fused_encoding_stays_fused_and_causal(self, base: str, fused: list[dict[str, Any]]) -> None:
        model = model_of(f"random:base={base},max=64").eval()
        with torch.no_grad():
            model(tokens(L))
        assert len(fused) == SIZES.layers
        assert all(call["attn_mask"] is None and call["is_causal"] for call in fused)

    def test_a_bias_stays_fused(self, fused: list[dict[str, Any]]) -> None:
        model = model_of("random:base=alibi,max=64").eval()
        with torch.no_grad():
            model(tokens(L))
        assert len(fused) == SIZES.layers
        assert all(call["attn_mask"].shape == (2, L, L) and not call["is_causal"] for call in fused)

    def test_scores_of_its_own_are_not(self, fused: list[dict[str, Any]]) -> None:
        with torch.no_grad():
            for spec in ("dape", "random:base=dape,max=64"):
                model_of(spec).eval()(tokens(L))
        assert not fused


class TestSpecs:
    @pytest.mark.parametrize(
        ("spec", "label"),
        [
            ("random", "Random(RoPE)"),
            ("random:base=expe", "Random(ExPE)"),
            ("random:base=(expe:size=8),max=512", "Random(ExPE(size=8))"),  # 512 is the default
            ("random:base=(expe:size=8),max=64", "Random(ExPE(size=8), max=64)"),
            ("random:evaluate=spread", "Random(RoPE, evaluate=spread)"),
            ("random:base=dape", "Random(DAPE(ALiBi))"),
            ("dape", "DAPE(ALiBi)"),
            ("dape:base=(kerple:kernel=power),width=8", "DAPE(KERPLE(kernel=power), width=8)"),
        ],
    )
    def test_labels(self, spec: str, label: str) -> None:
        assert layers_of(spec)[0].label() == label
        assert model_of(spec).label() == label

    def test_a_spec_in_parentheses(self) -> None:
        spec = specs.parse("random:base=(expe:size=8),max=512")
        assert spec == specs.Spec("random", {"base": "expe:size=8", "max": "512"})
        encoding = layer_encodings(spec.name, spec.arguments, DIMS)[0]
        assert encoding.arguments()["max"] == 512
        assert inner(encoding).arguments()["size"] == 8
        assert inner(encoding).display == "ExPE"

    @pytest.mark.parametrize(
        "spec",
        [
            "random:base=(expe:size=8),max=300",
            "random:base=(dape:base=(kerple:kernel=power),width=5),max=40",
            "random:base=t5",
            "dape:base=fire",
        ],
    )
    def test_resolved_arguments_rebuild_the_same(self, spec: str) -> None:
        """At another training length: what was derived from the first one is kept, in the base too."""
        first = layers_of(spec)[0]
        longer = Dims(width=32, heads=2, head_dim=16, seq_len=2 * L, layers=3)
        name = specs.parse(spec).name
        again = layer_encodings(name, first.arguments(), longer)[0]
        assert again.arguments() == first.arguments()
        assert inner(again).arguments() == inner(first).arguments()
        assert layers_of(specs.spell(name, first.arguments()))[0].arguments() == first.arguments()
        assert {key: value.shape for key, value in again.state_dict().items()} == {
            key: value.shape for key, value in first.state_dict().items()
        }
        buffers = dict(again.named_buffers())
        assert all(torch.equal(buffers[key], value) for key, value in first.named_buffers())
