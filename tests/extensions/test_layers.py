"""Extensions in some layers only, against a decoder by hand with a rule for each layer."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from extrapolate.encodings.base import Dims, encodings
from extrapolate.encodings.plan import LAYERS, PLAIN, Plan, is_of
from extrapolate.extensions import stack
from extrapolate.model.attention import ResolvedPlan
from extrapolate.model.model import Model, layer_encodings

L, N = 16, 48
ROPE = [10 ** (-m / 2) for m in range(8)]  # 16 channels, theta 10 000
MIXED = "local-global:every=2,window=6,theta=10000"  # layers 0 and 2 are local, 1 and 3 global
RNOPE = "rnope:every=2,window=6"


def near(i: int, j: int) -> int | None:
    return i - j if i - j < 6 else None


def far(i: int, j: int) -> int:
    return i - j


def plain(h: int, i: int) -> float:
    return 1.0


def steps(c: float, size: int) -> Callable[[int, int], float]:
    return lambda h, i: 1 + c * math.log1p(math.floor((i + 1) / size))


def alternate(local: Any, everything: Any) -> dict[int, Any]:
    return {0: local, 1: everything, 2: local, 3: everything}


YARN = (0.1 * math.log(3) + 1) ** 2


def yarns() -> list[float]:
    low, high = 0, math.ceil(16 * math.log(L / (2 * math.pi)) / (2 * math.log(1e4)))
    shares = [1 - min(1.0, max(0.0, (m - low) / (high - low))) for m in range(8)]
    return [w * (share + (1 - share) / 3) for w, share in zip(ROPE, shares, strict=True)]


CASES = [
    (MIXED, "yarn:layers=global", {
        "frequencies": alternate(ROPE, yarns()), "factor": alternate(plain, lambda h, i: YARN)}),
    (MIXED, "pi:layers=global", {"frequencies": alternate(ROPE, [w / 3 for w in ROPE])}),
    (MIXED, "pi:layers=local", {"frequencies": alternate([w / 3 for w in ROPE], ROPE)}),
    (MIXED, "pi:layers=rotated", {"frequencies": [w / 3 for w in ROPE]}),
    (MIXED, "log-n:layers=global + temperature:c=0.4", {
        "factor": alternate(lambda h, i: 1 + 0.4 * math.log(3),
                            lambda h, i: (1 + 0.4 * math.log(3)) * max(1.0, math.log(i + 1) / math.log(L)))}),
    (MIXED, "rerope:window=3,layers=global", {"distance": alternate(near, lambda i, j: min(i - j, 3))}),
    (MIXED, "window:size=9,layers=global", {
        "distance": alternate(near, lambda i, j: i - j if i - j < 9 else None)}),
    (MIXED, "jet-long-freq:layers=local", {"factor": alternate(lambda h, i: 0.1 * math.log(47 / 15) + 1, plain)}),
    (RNOPE, "llama4", {"factor": alternate(plain, steps(0.1, L))}),
    (RNOPE, "llama4:c=0.5,size=5", {"factor": alternate(plain, steps(0.5, 5))}),
    (RNOPE, "llama4:layers=local", {"factor": alternate(steps(0.1, L), plain)}),
    (RNOPE, "llama4:layers=all", {"factor": steps(0.1, L)}),
    (RNOPE, "llama4 + log-n:layers=rotated", {
        "factor": alternate(lambda h, i: max(1.0, math.log(i + 1) / math.log(L)), steps(0.1, L))}),
    ("none", "llama4", {"factor": steps(0.1, L), "distance": far, "frequencies": ()}),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "text", "rules"), CASES, ids=[text for _, text, _ in CASES])
def test_each_layer_by_hand(
    spec: str, text: str, rules: dict[str, Any], make_model: Any, by_hand: Any, every_path: Any
) -> None:
    model = make_model(spec, L, layers=4, kv_heads=1)
    usual = {"distance": alternate(near, far), "frequencies": alternate(ROPE, [] if spec == RNOPE else ROPE)}
    made = stack.parse(text)
    stack.check_applies(made, model)
    expected = by_hand(model, N, **(usual | rules))
    for actual in every_path(model, N, made.plan(model.encoding, L, N)):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-3)


def test_all_layers_of_a_kind_are_the_whole_model(make_model: Any, logits: Any) -> None:
    """Also where position enters at the embedding, and where positions are scaled."""
    for name in ("sinusoidal", "rope", "expe", "alibi"):
        model = make_model(name, L)
        for text in ("pi", "log-n", "pi + log-n"):
            plan = stack.parse(text).plan(model.encoding, L, N)
            only = stack.parse(text.replace("pi", "pi:layers=global")).plan(model.encoding, L, N)
            assert only.everywhere(model.encodings) == plan
            assert torch.equal(logits(model, N, only), logits(model, N, plan))


def test_nothing_changes_within_the_training_length(make_model: Any) -> None:
    model = make_model(RNOPE, L)
    for text in ("yarn:layers=rotated", "log-n:layers=global", "jet-long:layers=local", "pi:layers=local"):
        assert stack.parse(text).plan(model.encoding, L, L) == PLAIN
        assert stack.parse(text).plan(model.encoding, L, L + 1) != PLAIN
    for length in (1, L - 1):
        assert stack.parse("llama4").plan(model.encoding, L, length) == PLAIN
    assert stack.parse("llama4").plan(model.encoding, L, L) != PLAIN  # the last query's step, as in its code
    for text in ("llama4:c=0", "yarn:factor=1,layers=local", "self-extend:group=1,layers=local"):
        assert stack.parse(text).plan(model.encoding, L, N) == PLAIN


def test_one_setting_serves_every_pass(make_model: Any, logits: Any) -> None:
    """A setting holds what is for each layer, and the plan of a setting may be set again."""
    model = make_model(MIXED, L, layers=4)
    plan = stack.parse("pi:layers=local + temperature:layers=rotated,c=0.4").plan(model.encoding, L, N)
    setting = model.resolve(plan)
    assert isinstance(setting, ResolvedPlan)
    assert setting.plan.logit_scale != 1.0
    assert [layers for layers, _ in setting.plan.only] == ["local"]
    assert [setting.of_layer(layer).position_scale for layer in range(4)] == [1 / 3, 1.0, 1 / 3, 1.0]
    assert all(not setting.of_layer(layer).only for layer in range(4))
    again = model.resolve(setting.plan)
    assert (again.plan, again.of_layers) == (setting.plan, setting.of_layers)
    tokens = torch.arange(N)[None]
    with torch.no_grad():
        whole = model.hidden(tokens, setting)
        assert torch.equal(model.hidden(tokens, plan), whole)
        torch.testing.assert_close(model.hidden(tokens, setting, 40), whole[:, 40:], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model.hidden(tokens, replace(setting, queries_per_chunk=5)), whole)


@pytest.mark.parametrize("name", encodings.names())
def test_every_layer_knows_whether_it_rotates(name: str) -> None:
    dims = Dims(32, 2, 16, L, layers=4)
    for encoding in layer_encodings(name, {}, dims):
        q_BHTK = torch.randn(1, 2, 5, 16)
        pos_T = torch.arange(5.0)
        turned, _ = encoding.rotate(q_BHTK, q_BHTK, pos_T, pos_T, encoding.prepare(torch.randn(1, 5, 32)))
        assert encoding.has_rotation == (turned is not q_BHTK)


def test_kinds_of_layers() -> None:
    layers = layer_encodings("rnope", {"every": 2}, Dims(32, 2, 16, L, layers=3))
    found = {kind: [is_of(kind, encoding) for encoding in layers] for kind in LAYERS}
    assert found == {
        "all": [True] * 3,
        "global": [False, True, False],
        "local": [True, False, True],
        "rotated": [True, False, True],
        "unrotated": [False, True, False],
    }


def test_text_and_label() -> None:
    made = stack.parse("yarn:layers=global,factor=8 + log-n")
    assert made.text == "yarn:factor=8,layers=global + log-n"
    assert made.label() == "YaRN(8, global layers) + log-n"
    assert stack.parse(made.text).label() == made.label()
    assert stack.parse("llama4").label() == "Llama 4"
    assert stack.parse("llama4:layers=unrotated").label() == "Llama 4"
    fitted = stack.parse("temperature:layers=global").fitted(0.4)
    assert fitted.label() == "Temperature(0.4, global layers)"
    assert fitted.plan(None, L, 2 * L).only == (("global", Plan(logit_scale=1 + 0.4 * math.log(2))),)


@pytest.mark.parametrize(
    ("spec", "text", "message"),
    [
        ("rope", "yarn:layers=local", "yarn does not apply to RoPE: it is for local layers, and RoPE has none here"),
        ("rope", "llama4", "llama4 does not apply to RoPE: it is for unrotated layers, and RoPE has none here"),
        (RNOPE, "yarn:layers=global", "it changes frequencies, and the global layers of RNoPE have none here"),
        ("alibi", "pi:layers=rotated", "it is for rotated layers, and ALiBi has none here"),
        (
            "alibi",
            "yarn:layers=global",
            "yarn does not apply to ALiBi: it changes frequencies",
        ),
    ],
)
def test_what_no_layer_would_take_is_refused(spec: str, text: str, message: str, make_model: Any) -> None:
    model: Model = make_model(spec, L)
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.check_applies(stack.parse(text), model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yarn:layers=upper", "yarn: layers=upper is not all or global or local or rotated or unrotated"),
        ("yarn:layers=global + ntk:layers=local", "YaRN and NTK both change the frequencies"),
        ("llama4:c=-1", "llama4: c must not be negative, not -1"),
        ("llama4:size=0", "llama4: size must be at least 1, not 0"),
        ("yarn:layers=global,factor=1e300", "must be at most"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(text)


def test_numbers_out_of_range_are_refused_in_some_layers_too(make_model: Any) -> None:
    with pytest.raises(ValueError, match="at 48 tokens by a number that float32 does not have"):
        stack.parse("pi:factor=1e-38,layers=global").plan(make_model("rope", L).encoding, L, N)
