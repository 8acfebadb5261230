"""Sharper attention, against a decoder by hand whose scores are multiplied query by query."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.extensions import stack
from extrapolate.model.model import Model

L = 16
ROPE = [10 ** (-m / 2) for m in range(8)]  # 16 channels, theta 10 000


def log_n(h: int, i: int) -> float:
    return max(1.0, math.log(i + 1) / math.log(L))


def rules(model: Model, kind: str) -> dict[str, Any]:
    """What the decoder by hand is told of an encoding."""
    if kind == "rope":
        return {"frequencies": ROPE}
    if kind == "alibi":  # the bias is a part of the score
        return {"bias": lambda q, h, r: -(2 ** (-8 * (h + 1) / model.config.heads)) * r}
    if kind == "shaw":  # R = L - 1
        table = next(value.double() for name, value in model.state_dict().items() if name.endswith("table_RK"))
        return {"bias": lambda q, h, r: float(q @ table[min(round(r), L - 1)]) / 4}
    assert kind == "none"
    return {}


@pytest.mark.parametrize("kind", ["rope", "alibi", "none", "shaw"])
@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("log-n", log_n),
        ("temperature:c=0.4", lambda h, i: 1 + 0.4 * math.log(3)),
        ("temperature:c=-0.2", lambda h, i: 1 - 0.2 * math.log(3)),
        ("log-n + temperature:c=0.4", lambda h, i: log_n(h, i) * (1 + 0.4 * math.log(3))),
    ],
)
def test_by_hand(
    text: str,
    factor: Callable[[int, int], float],
    kind: str,
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
) -> None:
    model = make_model(kind, L, layers=1, kv_heads=1)
    plan = stack.parse(text).plan(model.encoding, L, 48)
    expected = by_hand(model, 48, factor=factor, **rules(model, kind))
    for actual in every_path(model, 48, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


def rerope(i: int, j: int) -> float:
    return min(i - j, 5)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("pi + log-n", {"distance": lambda i, j: (i - j) / 3}),
        ("log-n + rerope:window=5", {"distance": rerope}),
        ("window:size=7 + log-n", {"distance": lambda i, j: i - j if i - j < 7 else None}),
        ("ntk:factor=3 + log-n", {"frequencies": [w * 3 ** (-m / 7) for m, w in enumerate(ROPE)]}),
    ],
)
def test_log_n_reads_the_true_index(
    text: str,
    rule: dict[str, Any],
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
) -> None:
    model = make_model("rope", L)
    plan = stack.parse(text).plan(model.encoding, L, 48)
    expected = by_hand(model, 48, factor=log_n, **({"frequencies": ROPE} | rule))
    for actual in every_path(model, 48, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize("kind", ["rope", "alibi", "cope", "fox", "wall", "fire", "dape", "expe", "random"])
def test_first_queries_are_left_alone_by_log_n(
    kind: str, make_model: Callable[..., Model], logits: Callable[..., Tensor]
) -> None:
    model = make_model(kind, L)
    plan = stack.parse("log-n").plan(model.encoding, L, 40)
    actual, plain = logits(model, 40, plan), logits(model, 40)
    torch.testing.assert_close(actual[:L], plain[:L], rtol=1e-4, atol=1e-4)
    assert all(not torch.allclose(actual[i], plain[i], atol=1e-3) for i in range(L, 40))


@pytest.mark.parametrize(
    "kind", ["cope", "fox", "fox:form=cable", "wall:gate_bias=1", "dape", "pope", "t5", "sandwich"]
)
def test_all_of_a_score_is_multiplied(kind: str, make_model: Callable[..., Model], every_path: Any) -> None:
    """Content, bias and what an encoding computes itself: the softmax's input, tripled."""
    model = make_model(kind, L, layers=1)
    inputs: list[Tensor] = []
    softmax = Tensor.softmax

    def spy(self: Tensor, dim: int) -> Tensor:
        inputs.append(self.detach())
        return softmax(self, dim)

    tokens = torch.arange(48)[None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "softmax", spy)
        plain, tripled = model(tokens), model(tokens, Plan(logit_scale=3.0))
    assert len(inputs) == 2
    torch.testing.assert_close(inputs[1], 3 * inputs[0], rtol=1e-4, atol=1e-4)
    one_chunk, chunks, _ = every_path(model, 48, Plan(logit_scale=3.0))
    torch.testing.assert_close(one_chunk, chunks, rtol=1e-4, atol=2e-4)
    assert not torch.allclose(plain, tripled, atol=1e-3)


@pytest.mark.parametrize("kind", ["rope", "alibi", "none", "learned", "cope", "wall", "expe"])
@pytest.mark.parametrize("text", ["log-n", "temperature:c=0.4", "log-n + temperature:c=1"])
@pytest.mark.parametrize("length", [1, 5, L])
def test_nothing_changes_within_the_training_length(
    text: str, kind: str, length: int, make_model: Callable[..., Model], logits: Callable[..., Tensor]
) -> None:
    model = make_model(kind, L, layers=1)
    plan = stack.parse(text).plan(model.encoding, L, length)
    assert plan == PLAIN
    assert torch.equal(logits(model, length, plan), logits(model, length))


def test_the_scale_of_each_query() -> None:
    scale = Plan(log_length=L).query_scale(40, torch.device("cpu"))
    assert scale is not None
    assert scale.shape == (1, 40)
    assert torch.equal(scale[0, :L], torch.ones(L))
    torch.testing.assert_close(scale[0], torch.tensor([log_n(0, i) for i in range(40)]))
    assert scale[0, L] > 1
    both = Plan(log_length=L, logit_scale=0.5).query_scale(40, torch.device("cpu"))
    assert both is not None
    torch.testing.assert_close(both, scale / 2)
    assert PLAIN.query_scale(40, torch.device("cpu")) is None


@pytest.mark.parametrize("c", [0.0, 0.4, -0.3])
@pytest.mark.parametrize("length", [17, 32, 64])
def test_temperature(c: float, length: int, make_model: Callable[..., Model]) -> None:
    plan = stack.parse(f"temperature:c={c}").plan(make_model("none", L).encoding, L, length)
    assert plan == Plan(logit_scale=pytest.approx(1 + c * math.log(length / L), rel=1e-12))


def test_a_temperature_that_turns_scores_round_is_refused(make_model: Callable[..., Model]) -> None:
    made, encoding = stack.parse("temperature:c=-0.5"), make_model("none", L).encoding
    assert made.plan(encoding, L, 7 * L).logit_scale > 0
    message = re.escape("temperature: c=-0.5 makes the scores' factor -0.0397208 at 128 tokens")
    with pytest.raises(ValueError, match=message):
        made.plan(encoding, L, 8 * L)


def test_a_constant_left_out_is_to_be_fitted(make_model: Callable[..., Model]) -> None:
    encoding = make_model("rope", L).encoding
    for text in ("log-n", "temperature:c=0.1", "pi + log-n"):
        assert stack.parse(text).to_fit is None
    open_recipe = stack.parse("pi:factor=2 + temperature")
    assert open_recipe.to_fit is open_recipe.parts[1]
    fitted = open_recipe.fitted(0.25)
    assert fitted.to_fit is None
    expected = stack.parse("pi:factor=2 + temperature:c=0.25").plan(encoding, L, 64)
    assert fitted.plan(encoding, L, 64) == expected
    assert open_recipe.to_fit is not None, "fitting leaves the stack as it was"


@pytest.mark.parametrize("kind", ["rope", "none", "fox"])
def test_log_n_clashes_with_ssmax(kind: str, make_model: Callable[..., Model]) -> None:
    model = make_model(kind, L, ssmax=True)
    assert "log-n" not in stack.applicable(model)
    assert "temperature" in stack.applicable(model)
    stack.check_applies(stack.parse("temperature:c=0.1"), model)
    label = model.encoding.display
    for text in ("log-n", "temperature + log-n"):
        with pytest.raises(ValueError, match=f"log-n clashes with the SSMax that {label} was trained with") as caught:
            stack.check_applies(stack.parse(text), model)
        assert str(caught.value).endswith("what applies: " + ", ".join(stack.applicable(model)))
    stack.check_applies(stack.parse("log-n"), make_model(kind, L))


def test_ssmax_and_temperature_multiply(
    make_model: Callable[..., Model], by_hand: Callable[..., Tensor], every_path: Callable[..., list[Tensor]]
) -> None:
    model = make_model("rope", L, layers=1, ssmax=True)
    strength = model.state_dict()["blocks.0.attention.ssmax.s_H"].double()
    scale = 1 + 0.4 * math.log(3)
    expected = by_hand(model, 48, frequencies=ROPE, factor=lambda h, i: float(strength[h]) * math.log(i + 1) * scale)
    plan = stack.parse("temperature:c=0.4").plan(model.encoding, L, 48)
    for actual in every_path(model, 48, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)
