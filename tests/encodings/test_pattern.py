"""Layers with different encodings in turn: each does what it does alone, and extensions apply where all attend so."""

from typing import Any

import pytest
import torch

from extrapolate import specs
from extrapolate.encodings.base import FREQUENCIES, LOGITS, MASK, POSITIONS, RELATIVE, Dims, Encoding
from extrapolate.encodings.pattern import Pattern
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.extensions import stack
from extrapolate.model.attention import ResolvedPlan
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

L = 16
SIZES = ModelConfig(vocab_size=31, width=24, layers=4, heads=2, kv_heads=1, head_dim=12, ff_width=24)
DIMS = Dims(width=24, heads=2, head_dim=12, seq_len=L, layers=4)


def layers_of(text: str | None, dims: Dims = DIMS) -> list[Encoding]:
    torch.manual_seed(0)
    return layer_encodings("pattern", {} if text is None else {"layers": text}, dims)


def made(text: str) -> Model:
    torch.manual_seed(0)
    return Model(SIZES, "pattern", {"layers": text}, L).eval()


def tokens(length: int) -> torch.Tensor:
    return torch.randint(31, (2, length), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_each_layer_computes_what_its_encoding_does() -> None:
    """As a model whose blocks' encodings were put there by hand."""
    model = made("kda,(rope:theta=50),alibi")
    by_hand = [
        layer_encodings(name, arguments, DIMS)[layer]
        for layer, (name, arguments) in enumerate([("kda", {}), ("rope", {"theta": 50}), ("alibi", {}), ("kda", {})])
    ]
    for own, other in zip(model.encodings, by_hand, strict=True):
        other.load_state_dict({key.removeprefix("inner."): value for key, value in own.state_dict().items()})
    plain = Plan()
    x = tokens(40)
    torch.testing.assert_close(model(x), model(x, ResolvedPlan(plain, tuple(by_hand))))
    swapped = (by_hand[0], by_hand[2], by_hand[1], by_hand[3])
    assert (model(x) - model(x, ResolvedPlan(plain, swapped))).abs().max() > 1e-6


@torch.no_grad()
def test_one_encoding_everywhere_is_that_encoding() -> None:
    torch.manual_seed(0)
    rope = Model(SIZES, "rope", {}, L).eval()
    for text in ("rope", "rope,rope"):
        assert torch.equal(made(text)(tokens(20)), rope(tokens(20)))


@pytest.mark.parametrize(
    ("text", "label", "spelled", "unusual"),
    [
        (None, "3 KDA : 1 NoPE", "kda,kda,kda,none", {}),
        ("kda,kda,kda,none", "3 KDA : 1 NoPE", "kda,kda,kda,none", {}),
        ("none,kda", "1 NoPE : 1 KDA", "none,kda", {"layers": "none,kda"}),
        ("(rope:theta=5),alibi", "1 RoPE(theta=5) : 1 ALiBi", "(rope:theta=5.0,pairing=half),alibi",
         {"layers": "(rope:theta=5.0),alibi"}),
        ("(rope:theta=5)", "1 RoPE(theta=5)", "(rope:theta=5.0,pairing=half)", {"layers": "(rope:theta=5.0)"}),
        ("(random:base=(expe:size=8)),none", "1 Random(ExPE(size=8)) : 1 NoPE", None, None),
    ],
)  # fmt: skip
def test_labels_and_arguments(text: str | None, label: str, spelled: str | None, unusual: Any) -> None:
    layers = layers_of(text)
    assert {layer.label() for layer in layers} == {label}
    assert len({str(layer.arguments()) for layer in layers}) == 1
    if spelled is not None:
        assert layers[0].arguments() == {"layers": spelled}
        assert layers[0].unusual_arguments() == unusual
    written = specs.parse(specs.spell("pattern", layers[0].arguments()))
    again = layer_encodings("pattern", written.arguments, DIMS)
    assert again[0].arguments() == layers[0].arguments()
    assert [layer.inner.label() for layer in again] == [layer.inner.label() for layer in layers]


@pytest.mark.parametrize(("count", "label"), [(1, "1 KDA"), (2, "1 KDA : 1 NoPE"), (3, "2 KDA : 1 NoPE")])
def test_the_default_fits_a_model_with_few_layers(count: int, label: str) -> None:
    assert layers_of(None, Dims(24, 2, 12, L, layers=count))[0].label() == label


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("kda,none", {MASK, LOGITS}),
        ("kda", set()),
        ("kda,rope", RELATIVE | {FREQUENCIES}),
        ("rope,(rope:theta=5)", RELATIVE),  # their frequencies are not the same ones
        ("rope,alibi", RELATIVE - {FREQUENCIES}),
        ("rope,none", {MASK, LOGITS}),
        ("retention,rope", (RELATIVE | {FREQUENCIES}) - {POSITIONS}),  # retention would be turned by them too
    ],
)
def test_extensions_apply_if_all_layers_with_attention_take_them(text: str, accepted: set[str]) -> None:
    assert {layer.accepts for layer in layers_of(text)} == {frozenset(accepted)}


def test_what_applies_by_name() -> None:
    assert stack.applicable(made("kda,kda,kda,none")) == [
        "llama4",
        "lm-infinite",
        "log-n",
        "sinks",
        "temperature",
        "window",
    ]
    assert stack.applicable(made("kda")) == []


@torch.no_grad()
@pytest.mark.parametrize("text", ["ntk:factor=4", "window:size=3", "sinks", "rerope:k=3", "log-n"])
def test_an_extension_changes_the_layers_with_attention_alone(text: str) -> None:
    """As in a model of these layers by hand: a recurrence takes no part in windows and pairs."""
    model = made("retention,rope")
    plan = stack.parse(text).plan(model.encoding, L, 3 * L)
    setting, x = model.resolve(plan), tokens(3 * L)
    by_hand = [layer_encodings(name, {}, DIMS)[0] for name in ("retention", "rope", "retention", "rope")]
    for own, other in zip(model.encodings, by_hand, strict=True):
        other.load_state_dict({key.removeprefix("inner."): value for key, value in own.state_dict().items()})
    found = model(x, setting)
    changed = (by_hand[0], by_hand[1].extended(plan), by_hand[2], by_hand[3].extended(plan))
    torch.testing.assert_close(found, model(x, ResolvedPlan(plan, changed)))
    assert (found - model(x)).abs().max() > 1e-6
    assert [layer.window for layer in setting.encodings] == [None, plan.window] * 2


def test_layers_with_one_encoding_share_what_its_paper_shares() -> None:
    first, other, third, last = layers_of("t5,(t5:buckets=4)")
    assert first.inner.table_RH is third.inner.table_RH
    assert other.inner.table_RH is last.inner.table_RH
    assert first.inner.table_RH is not other.inner.table_RH


def test_windows_end_where_the_first_of_them_does() -> None:
    assert {layer.max_length for layer in layers_of("learned,rope")} == {L}
    model = made("learned,rope")
    assert model.defined_at(L, Plan())
    assert not model.defined_at(L + 1, Plan())


def test_captions_and_kinds_are_those_of_all() -> None:
    layers: list[Pattern] = layers_of("kda,none,asentmax")
    assert layers[1].caption == f"{layers[0].inner.caption} {layers[2].inner.caption}"
    assert layers[1].rescales == {"rotate"}
    assert [layer.positional for layer in layers_of("kda,none")] == [False] * 4
    assert [layer.positional for layer in layers_of("kda,rope")] == [True] * 4
    assert [layer.attends() for layer in layers_of("kda,none")] == [False, True] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "layers must name between 1 and 4 encodings, not 0"),
        ("rope,rope,rope,rope,none", "between 1 and 4 encodings, not 5"),
        ("rope,rop", "unknown encoding 'rop'; did you mean 'rope'"),
        ("rope:theta=5,pairing=half", "'pairing=half' is an argument, and no encoding"),
        ("rope,(rope:theta=1)", "theta must be more than 1"),
        ("rope,mine.py:Mine", "registered encoding, not a class of a file"),
        ("rope,learned", "Learned changes what the first layer reads: it must be the first"),
        ("rope,(random:base=alibi)", "changes what the first layer reads"),
    ],
)
def test_refused_arguments(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        layers_of(text)


def test_one_that_must_be_first_may_be_there_and_come_again() -> None:
    assert layers_of("learned,kda")[0].label() == "1 Learned : 1 KDA"
    assert layers_of("learned,learned,none")[3].inner.label() == "Learned"
