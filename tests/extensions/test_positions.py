"""Position interpolation, ExPE's scaling and the stretched table, against transformers and a decoder by hand."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from extrapolate.encodings.base import Dims
from extrapolate.encodings.learned import Learned
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.t5 import T5
from extrapolate.extensions import stack
from extrapolate.model.model import Model

L, WIDTH = 16, 32
POSITIONAL = [
    "rope", "p-rope", "partial-rope", "xpos", "hope", "fope", "pope", "rnope", "alibi", "t5", "kerple", "sandwich",
    "fire", "dape", "sinusoidal", "expe", "exqpe",
]  # fmt: skip


def linear(factor: float) -> list[float]:
    """transformers' frequencies of a head of 16 channels."""
    parameters = {"rope_type": "linear", "factor": factor, "rope_theta": 1e4}
    config = LlamaConfig(hidden_size=32, num_attention_heads=2, head_dim=16, rope_parameters=parameters)
    inverse, amplitude = ROPE_INIT_FUNCTIONS["linear"](config, torch.device("cpu"))
    assert amplitude == 1.0
    return inverse.double().tolist()


@pytest.mark.parametrize(("text", "factor"), [("pi", 4.0), ("pi:factor=2.5", 2.5), ("pi:factor=7", 7.0)])
def test_pi_is_transformers_linear_scaling(
    text: str,
    factor: float,
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
) -> None:
    model = make_model("rope", L, kv_heads=1)
    expected = by_hand(model, 64, frequencies=linear(factor))
    for actual in every_path(model, 64, stack.parse(text).plan(model.encoding, L, 64)):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


def sinusoid(n: float) -> list[float]:
    return [
        (math.sin if c % 2 == 0 else math.cos)(n * 10_000 ** (-(c - c % 2) / WIDTH)) for c in range(WIDTH)
    ]  # fmt: skip


def test_pi_evaluates_sinusoids_in_between(
    make_model: Callable[..., Model], by_hand: Callable[..., Tensor], logits: Callable[..., Tensor]
) -> None:
    model = make_model("sinusoidal", L)
    added = torch.tensor([sinusoid(i * L / 40) for i in range(40)], dtype=torch.float64)
    expected = by_hand(model, 40, embed=lambda x: x + 0.5 * added)
    actual = logits(model, 40, stack.parse("pi").plan(model.encoding, L, 40))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


def bucket(r: float) -> int:
    """T5's, for 8 buckets that end at 16 tokens, as they are for L = 16."""
    return int(r) if r < 4 else min(7, 4 + int(math.log(r / 4) / math.log(16 / 4) * 4))


@pytest.mark.parametrize("encoding", ["alibi", "t5", "kerple"])
def test_pi_divides_the_distance_of_a_bias(
    encoding: str, make_model: Callable[..., Model], by_hand: Callable[..., Tensor], logits: Callable[..., Tensor]
) -> None:
    model = make_model(encoding, L, layers=1)
    weights = model.state_dict()
    biases = {
        "alibi": lambda q, h, r: -(2 ** (-4 * (h + 1))) * r,
        "t5": lambda q, h, r: float(weights["blocks.0.encoding.table_RH"][bucket(r), h]),
        "kerple": lambda q, h, r: (
            -float(weights["blocks.0.encoding.p_H"][h]) * math.log1p(float(weights["blocks.0.encoding.a_H"][h]) * r)
        ),
    }
    expected = by_hand(model, 64, distance=lambda i, j: (i - j) / 4, bias=biases[encoding])
    actual = logits(model, 64, stack.parse("pi").plan(model.encoding, L, 64))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize("factor", [2, 3, 5, 7])
def test_a_distance_of_whole_tokens_is_in_its_bucket_wherever_it_is(factor: int) -> None:
    """Positions i / factor are rounded, and T5 rounds their difference down."""
    length = factor * 64
    encoding = T5(Dims(32, 2, 16, 64))
    pos_T = torch.arange(length, dtype=torch.float32) * stack.parse("pi").plan(encoding, 64, length).position_scale
    buckets = encoding.bucket(pos_T[:, None] - pos_T[None, :])
    for r in range(0, length, factor):
        here = buckets.diagonal(-r)
        assert (here == encoding.bucket(torch.tensor(float(r // factor)))).all(), f"distance {r}"


@pytest.mark.parametrize("encoding", POSITIONAL)
def test_pi_presents_every_position_divided(
    encoding: str, make_model: Callable[..., Model], logits: Callable[..., Tensor]
) -> None:
    """As if the first layer had said so itself."""
    model = make_model(encoding, L)
    actual = logits(model, 64, stack.parse("pi").plan(model.encoding, L, 64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.encoding), "positions", lambda self, index_T: index_T / 4)
        expected = logits(model, 64)
    assert torch.equal(actual, expected)
    assert not torch.allclose(actual, logits(model, 64), atol=1e-3)


def written(model: Model, length: int, scale: float, position_scale: float) -> Callable[[Tensor], Tensor]:
    """What queries and keys read: the first 4 of 32 channels overridden, with S = -1 and theta = phi = 2 / L."""
    taking_turns = model.encoding.display == "ExQPE"
    theta = phi = 2 / L

    def value(n: float, c: int) -> float:
        if taking_turns:
            return scale * (-1 + phi * c + 4 * theta * math.floor((n + c) / 4))
        return scale * (-1 + theta * n + phi * c)

    values = [[value(i * position_scale, c) for c in range(4)] for i in range(length)]
    return lambda x: torch.cat([torch.tensor(values, dtype=torch.float64), x[:, 4:]], dim=-1)


@pytest.mark.parametrize("encoding", ["expe", "exqpe"])
@pytest.mark.parametrize(
    ("text", "scale", "position_scale"),
    [
        ("expe-scale", 1 / 4, 1),
        ("expe-scale:factor=0.5", 1 / 2, 1),
        ("expe-scale:reading=positions", 1, 1 / 4),
        ("expe-scale:reading=positions,factor=0.5", 1, 1 / 2),
        ("pi", 1, 1 / 4),
        ("expe-scale:factor=0.5 + pi:factor=8", 1 / 2, 1 / 8),
    ],
)
def test_both_readings_of_expes_scaling(
    encoding: str,
    text: str,
    scale: float,
    position_scale: float,
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    logits: Callable[..., Tensor],
) -> None:
    model = make_model(encoding, L)
    expected = by_hand(model, 64, read=written(model, 64, scale, position_scale))
    actual = logits(model, 64, stack.parse(text).plan(model.encoding, L, 64))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


def stretched(table: Tensor, length: int) -> Tensor:
    """Every row at i (L-1)/(N-1), from the rows on either side."""
    rows = []
    for i in range(length):
        place = i * (L - 1) / (length - 1)
        below = min(int(place), L - 2)
        rows.append(table[below] + (place - below) * (table[below + 1] - table[below]))
    return torch.stack(rows)


@pytest.mark.parametrize("length", [17, 31, 64])
def test_a_table_is_stretched(
    length: int, make_model: Callable[..., Model], by_hand: Callable[..., Tensor], logits: Callable[..., Tensor]
) -> None:
    model = make_model("learned", L)
    table = model.state_dict()["blocks.0.encoding.table_LD"].double()
    expected = by_hand(model, length, embed=lambda x: x + stretched(table, length))
    plan = stack.parse("table-resize").plan(model.encoding, L, length)
    torch.testing.assert_close(logits(model, length, plan).double(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("length", [2, 8, 16, 17, 100, 1000, 4096])
def test_both_ends_of_a_table_stay(length: int) -> None:
    encoding = Learned(Dims(WIDTH, 2, 16, L))
    plan = stack.parse("table-resize").plan(encoding, L, length)
    pos_T = torch.arange(length, dtype=torch.float32) * plan.position_scale
    read = encoding.embed(torch.zeros(1, length, WIDTH), pos_T)[0].detach()
    assert torch.equal(read[0], encoding.table_LD[0])
    torch.testing.assert_close(read[-1], encoding.table_LD[min(length, L) - 1], rtol=0, atol=1e-6)
    if length <= L:
        assert torch.equal(read, encoding.table_LD[:length])
    else:
        align_corners = torch.nn.functional.interpolate(
            encoding.table_LD.T[None], size=length, mode="linear", align_corners=True
        )[0].T
        torch.testing.assert_close(read, align_corners, rtol=0, atol=1e-5)


def test_how_far_an_encoding_reaches(make_model: Callable[..., Model]) -> None:
    learned = make_model("learned", L).encoding
    for length in (L + 1, 64, 999):
        plan = stack.parse("table-resize").plan(learned, L, length)
        assert learned.defined_at(length, plan)
        assert not learned.defined_at(length, PLAIN)
        assert not learned.defined_at(length + length // L, plan)
    xpos = make_model("xpos", L).encoding
    assert xpos.max_length is not None
    assert not xpos.defined_at(2 * xpos.max_length, PLAIN)
    assert xpos.defined_at(2 * xpos.max_length, stack.parse("pi").plan(xpos, L, 2 * xpos.max_length))


@pytest.mark.parametrize(
    ("text", "encoding", "lengths"),
    [
        *(("pi:factor=1", name, (8, L, 64)) for name in POSITIONAL),
        *((f"expe-scale:factor=1{more}", name, (8, L, 64))
          for name in ("expe", "exqpe") for more in ("", ",reading=positions")),
        ("pi", "rope", (1, 8, L)), ("pi", "t5", (1, 8, L)), ("expe-scale", "expe", (1, 8, L)),
        ("expe-scale:reading=positions", "exqpe", (1, 8, L)), ("table-resize", "learned", (1, 8, L)),
    ],
)  # fmt: skip
def test_what_changes_nothing_exactly(
    text: str, encoding: str, lengths: Sequence[int], make_model: Any, logits: Callable[..., Tensor]
) -> None:
    model = make_model(encoding, L, layers=1)
    for length in lengths:
        plan = stack.parse(text).plan(model.encoding, L, length)
        assert plan == PLAIN
        assert torch.equal(logits(model, length, plan), logits(model, length))


@pytest.mark.parametrize(("length", "scale"), [(8, 1.0), (16, 1.0), (24, 2 / 3), (32, 1 / 2), (256, 1 / 16)])
def test_a_factor_left_out_is_computed_for_each_length(
    length: int, scale: float, make_model: Callable[..., Model]
) -> None:
    encoding = make_model("expe", L).encoding
    positions = Plan(position_scale=pytest.approx(scale, rel=1e-15))
    assert stack.parse("pi").plan(encoding, L, length) == positions
    assert stack.parse("expe-scale:reading=positions").plan(encoding, L, length) == positions
    assert stack.parse("expe-scale").plan(encoding, L, length) == Plan(value_scale=scale)


def test_a_factor_given_is_the_same_for_each_length(make_model: Callable[..., Model]) -> None:
    encoding = make_model("expe", L).encoding
    for length in (8, 16, 256):
        assert stack.parse("pi:factor=2").plan(encoding, L, length) == Plan(position_scale=0.5)
        assert stack.parse("expe-scale:factor=0.5").plan(encoding, L, length) == Plan(value_scale=0.5)


@pytest.mark.parametrize("name", ["pi", "expe-scale"])
@pytest.mark.parametrize(
    ("factor", "message"),
    [
        ("0", "factor must be a positive number, not 0"),
        ("-1", "factor must be a positive number, not -1"),
        ("inf", "factor=inf is not a finite number"),
        ("nan", "factor=nan is not a finite number"),
    ],
)
def test_factors_that_are_refused(name: str, factor: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name}: {message}")):
        stack.parse(f"{name}:factor={factor}")


def test_readings_that_are_refused() -> None:
    with pytest.raises(ValueError, match="expe-scale: reading=both is not values or positions"):
        stack.parse("expe-scale:reading=both")


def test_no_position_leaves_the_trained_range_under_pi(make_model: Callable[..., Model]) -> None:
    encoding = make_model("rope", L).encoding
    for length in (L, L + 1, 3 * L, 1000):
        scale = stack.parse("pi").plan(encoding, L, length).position_scale
        assert np.float32(length - 1) * np.float32(scale) < L
