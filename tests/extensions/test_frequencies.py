"""Other frequencies, against transformers' functions and the papers' formulas in float64."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.extensions import stack
from extrapolate.model.model import Model, layer_encodings

CPU = torch.device("cpu")
RISING = ",".join(f"{1 + m / 3:.4f}" for m in range(8))
HEAD_DIMS, THETAS = (16, 64, 128), (1e4, 5e5)
SPECTRA = [
    (16, 1e4, 64), (16, 5e5, 512), (16, 1e4, 8192), (64, 1e4, 512), (64, 5e5, 64), (64, 5e5, 8192), (128, 1e4, 64),
    (128, 5e5, 8192), (16, 1e4, 4), (16, 100.0, 4096), (64, 100.0, 100_000),
]  # fmt: skip
ROTARY = [
    "rope", "rope:pairing=interleaved", "p-rope", "partial-rope:fraction=0.5", "xpos", "hope:kept=6",
    "fope:kept=6,gain=0.5", "pope", "rnope",
]  # fmt: skip


def encoding_of(spec: str, d: int, seq_len: int, theta: float) -> Encoding:
    parsed = specs.parse(spec)
    return layer_encodings(parsed.name, {**parsed.arguments, "theta": theta}, Dims(4 * d, 4, d, seq_len))[0]


def frequencies(encoding: Encoding, plan: Plan) -> Tensor:
    w = encoding.frequencies(CPU)
    return w * torch.tensor(plan.frequency_scale or [1.0] * len(w))


def ours(text: str, d: int, theta: float, seq_len: int, length: int, encoding: str = "rope") -> tuple[Tensor, float]:
    """Frequencies, and what the scores are multiplied by."""
    made = encoding_of(encoding, d, seq_len, theta)
    plan = stack.parse(text).plan(made, seq_len, length)
    assert plan == Plan(frequency_scale=plan.frequency_scale, logit_scale=plan.logit_scale)
    return frequencies(made, plan), plan.logit_scale


def theirs(
    kind: str, d: int, theta: float, seq_len: int, length: int | None = None, **parameters: Any
) -> tuple[Tensor, float]:
    """As `ours`, from transformers: its tables of both queries and keys are multiplied by its factor."""
    config = LlamaConfig(
        hidden_size=4 * d,
        num_attention_heads=4,
        head_dim=d,
        max_position_embeddings=seq_len,
        rope_parameters={
            "rope_type": kind, "rope_theta": theta, "original_max_position_embeddings": seq_len, **parameters,
        },
    )  # fmt: skip
    inverse, amplitude = ROPE_INIT_FUNCTIONS[kind](config, CPU, seq_len=length)
    return inverse, amplitude**2


def same(actual: tuple[Tensor, float], expected: tuple[Tensor, float]) -> None:
    torch.testing.assert_close(actual[0], expected[0], rtol=3e-6, atol=0)
    assert actual[1] == pytest.approx(expected[1], rel=1e-12)


@pytest.mark.parametrize("s", [1.0, 1.5, 4.0, 16.0])
@pytest.mark.parametrize(("d", "theta", "seq_len"), SPECTRA)
def test_ntk_raises_the_base(d: int, theta: float, seq_len: int, s: float) -> None:
    base = theta * s ** (d / (d - 2))
    expected = torch.tensor([base ** (-2 * m / d) for m in range(d // 2)], dtype=torch.float64).float()
    same(ours(f"ntk:factor={s}", d, theta, seq_len, 2 * seq_len), (expected, 1.0))
    same(ours("ntk", d, theta, seq_len, int(s * seq_len)), (expected, 1.0))


@pytest.mark.parametrize("d", [4, *HEAD_DIMS])
@pytest.mark.parametrize("s", [2.0, 7.0])
def test_ntk_leaves_the_fastest_alone_and_divides_the_slowest_by_the_factor(d: int, s: float) -> None:
    scale = stack.parse("ntk").plan(encoding_of("rope", d, 64, 1e4), 64, int(64 * s)).frequency_scale
    assert scale[0] == 1.0
    assert scale[-1] == 1 / s
    assert list(scale) == sorted(scale, reverse=True)


@pytest.mark.parametrize("factor", [1.0, 2.0, 3.5])
@pytest.mark.parametrize(("d", "theta", "seq_len"), SPECTRA)
def test_dynamic_ntk(d: int, theta: float, seq_len: int, factor: float) -> None:
    for length in (seq_len // 2, seq_len, seq_len + 1, 3 * seq_len, 16 * seq_len):
        expected = theirs("dynamic", d, theta, seq_len, length, factor=factor)
        same(ours(f"dynamic-ntk:factor={factor}", d, theta, seq_len, length), expected)


def test_dynamic_ntk_has_the_papers_factor_and_with_one_is_ntk() -> None:
    encoding = encoding_of("rope", 16, 64, 1e4)
    for length in (64, 100, 1024):
        plans = {text: stack.parse(text).plan(encoding, 64, length) for text in ("ntk", "dynamic-ntk:factor=1")}
        assert plans["ntk"] == plans["dynamic-ntk:factor=1"]
        default = stack.parse("dynamic-ntk").plan(encoding, 64, length)
        assert default == stack.parse("dynamic-ntk:factor=2").plan(encoding, 64, length)


@pytest.mark.parametrize("arguments", [{}, {"fast": 16.0, "slow": 2.0}, {"fast": 4.0, "slow": 0.5}])
@pytest.mark.parametrize("factor", [2.0, 3.7, 16.0])
@pytest.mark.parametrize(("d", "theta", "seq_len"), SPECTRA)
def test_ntk_by_parts_and_yarn(d: int, theta: float, seq_len: int, factor: float, arguments: dict[str, float]) -> None:
    betas = {f"beta_{name}": value for name, value in arguments.items()}
    expected = theirs("yarn", d, theta, seq_len, factor=factor, **betas)
    given = "".join(f",{name}={value}" for name, value in arguments.items())
    same(ours(f"yarn:factor={factor}{given}", d, theta, seq_len, 2 * seq_len), expected)
    same(ours(f"ntk-by-parts:factor={factor}{given}", d, theta, seq_len, 2 * seq_len), (expected[0], 1.0))
    assert expected[1] == pytest.approx((0.1 * math.log(factor) + 1) ** 2)


def test_the_ramp_of_the_worked_example() -> None:
    """L 512, theta 10 000, K 64: pairs up to 3 keep their frequency, from 16 on all is divided."""
    scale = stack.parse("yarn").plan(encoding_of("rope", 64, 512, 1e4), 512, 2048).frequency_scale
    assert all(factor == 1.0 for factor in scale[:4])
    assert all(factor == 1 / 4 for factor in scale[16:])
    for m in range(3, 17):
        assert scale[m] == pytest.approx(1 - (m - 3) / 13 * 3 / 4)


@pytest.mark.parametrize(("text", "slow", "fast"), [("", 1, 32), (",slow=2,fast=5", 2, 5)])
@pytest.mark.parametrize(("d", "theta", "seq_len"), SPECTRA)
def test_by_parts_over_turns(d: int, theta: float, seq_len: int, text: str, slow: float, fast: float) -> None:
    expected = []
    for m in range(d // 2):
        w = theta ** (-2 * m / d)
        turns = seq_len * w / (2 * math.pi)
        gamma = min(1.0, max(0.0, (turns - slow) / (fast - slow)))
        expected.append((1 - gamma) * w / 6 + gamma * w)
    made = torch.tensor(expected)
    same(ours(f"ntk-by-parts:factor=6,ramp=turns{text}", d, theta, seq_len, 2 * seq_len), (made, 1.0))
    amplified = (0.1 * math.log(6) + 1) ** 2
    same(ours(f"yarn:factor=6,ramp=turns{text}", d, theta, seq_len, 2 * seq_len), (made, amplified))


@pytest.mark.parametrize("arguments", [{}, {"slow": 2.0, "fast": 9.0}])
@pytest.mark.parametrize("factor", [2.0, 8.0])
@pytest.mark.parametrize(("d", "theta", "seq_len"), SPECTRA)
def test_llama3(d: int, theta: float, seq_len: int, factor: float, arguments: dict[str, float]) -> None:
    slow, fast = arguments.get("slow", 1.0), arguments.get("fast", 4.0)
    expected = theirs("llama3", d, theta, seq_len, factor=factor, low_freq_factor=slow, high_freq_factor=fast)
    given = "".join(f",{name}={value}" for name, value in arguments.items())
    same(ours(f"llama3:factor={factor}{given}", d, theta, seq_len, 2 * seq_len), expected)


@pytest.mark.parametrize("length", [32, 64, 65, 512])
@pytest.mark.parametrize("factor", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("theta", THETAS)
def test_longrope_with_lists(theta: float, factor: float, length: int) -> None:
    long, short = [1 + m / 2 for m in range(8)], [1 + m / 50 for m in range(8)]
    text = f"longrope:factor={factor},long=({','.join(map(str, long))}),short=({','.join(map(str, short))})"
    expected = theirs("longrope", 16, theta, 64, length, factor=factor, long_factor=long, short_factor=short)
    same(ours(text, 16, theta, 64, length), expected)


def test_longrope_without_lists_derives_them() -> None:
    """The long list is what yarn divides by, the short one ones; scores have LongRoPE's own factor."""
    for d, theta, seq_len in SPECTRA:
        for text, s in (("longrope", 8), ("longrope:factor=3", 3)):
            yarn, _ = theirs("yarn", d, theta, seq_len, factor=float(s))
            same(ours(text, d, theta, seq_len, 8 * seq_len), (yarn, 1 + math.log(s) / math.log(seq_len)))
        plain = torch.tensor([theta ** (-2 * m / d) for m in range(d // 2)])
        same(ours("longrope", d, theta, seq_len, seq_len), (plain, 1.0))
        same(ours("longrope:factor=3", d, theta, seq_len, seq_len), (plain, 1 + math.log(3) / math.log(seq_len)))


def test_longrope_with_one_list() -> None:
    plain = torch.tensor([1e4 ** (-m / 8) for m in range(8)])
    text = f"longrope:long=({RISING})"
    divided = plain / torch.tensor([float(part) for part in RISING.split(",")])
    same(ours(text, 16, 1e4, 64, 65), (divided, 1 + math.log(65 / 64) / math.log(64)))
    same(ours(text, 16, 1e4, 64, 64), (plain, 1.0))


def test_a_factor_below_one_leaves_scores_alone() -> None:
    same(ours("yarn:factor=0.5", 16, 1e4, 64, 64), theirs("yarn", 16, 1e4, 64, factor=0.5))
    ones = [1.0] * 8
    expected = theirs("longrope", 16, 1e4, 64, 64, factor=0.5, long_factor=ones, short_factor=ones)
    same(ours("longrope:factor=0.5", 16, 1e4, 64, 64), expected)
    assert expected[1] == 1.0


@pytest.mark.parametrize("p", [0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.99, 1.0])
@pytest.mark.parametrize("d", HEAD_DIMS)
@pytest.mark.parametrize("theta", THETAS)
def test_truncation(d: int, theta: float, p: float) -> None:
    expected = theirs("proportional", d, theta, 64, partial_rotary_factor=p)
    for length in (32, 64, 256):
        same(ours(f"p-rope:p={p}", d, theta, 64, length), expected)
    if p == 0.75:
        same(ours("p-rope", d, theta, 64, 64), expected)


@pytest.mark.parametrize("text", ["yarn", "ntk-by-parts", "llama3", "dynamic-ntk", "p-rope", "ntk"])
def test_a_spectrum_of_another_size(text: str) -> None:
    """Partial RoPE has the spectrum of the channels it rotates, PoPE that of a head twice as large."""
    for size, name, d in ((32, "partial-rope:fraction=0.5", 64), (128, "pope", 64), (64, "rnope", 64)):
        same(ours(text, d, 1e4, 512, 2048, name), ours(text, size, 1e4, 512, 2048))


@pytest.mark.parametrize("text", ["yarn", "llama3", "ntk"])
@pytest.mark.parametrize(("name", "kept"), [("p-rope:p=0.5", 16), ("hope:kept=9", 9), ("fope:kept=9", 32)])
def test_frequencies_that_an_encoding_dropped_stay_dropped(text: str, name: str, kept: int) -> None:
    whole, scale = ours(text, 64, 1e4, 512, 2048)
    cut, cut_scale = ours(text, 64, 1e4, 512, 2048, name)
    assert torch.equal(cut, torch.cat([whole[:kept], torch.zeros(32 - kept)]))
    assert cut_scale == scale


@pytest.mark.parametrize("spec", ROTARY)
def test_every_rotary_encoding_turns_by_the_frequencies_of_the_plan(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the same encoding does whose own frequencies are those."""
    torch.manual_seed(0)
    encoding = encoding_of(spec, 16, 64, 1e4)
    spectrum = encoding.spectrum()
    assert spectrum is not None
    scale = [0.9**m for m in range(spectrum.count)]
    q, k = torch.randn(2, 1, 4, 20, 16)
    pos_T = torch.arange(20.0)
    other = encoding.extended(Plan(frequency_scale=tuple(scale)))
    rotated = other.rotate(q, k, pos_T, pos_T.clone())
    plain = type(encoding).frequencies
    monkeypatch.setattr(type(encoding), "frequencies", lambda self, device: plain(self, device) * torch.tensor(scale))
    expected = encoding.rotate(q, k, pos_T, pos_T.clone())
    torch.testing.assert_close(rotated, expected, rtol=0, atol=0)
    monkeypatch.undo()
    assert encoding.extended(PLAIN).rotate(q, k, pos_T, pos_T)[0].equal(encoding.rotate(q, k, pos_T, pos_T)[0])
    if spec != "rnope":  # in its only layer here nothing is rotated
        assert not torch.allclose(rotated[0], encoding.rotate(q, k, pos_T, pos_T)[0], atol=1e-3)


def test_pope_by_hand_under_yarn(make_model: Callable[..., Model]) -> None:
    """One head's scores: a sum over channels of softplus products times a cosine. A^2 is the plan's."""
    model = make_model("pope", layers=1, heads=1, kv_heads=1)
    plan = stack.parse("yarn").plan(model.encoding, 16, 64)
    w, logit_scale = theirs("yarn", 32, 1e4, 16, factor=4.0)
    assert plan.logit_scale == pytest.approx(logit_scale)
    q, k = torch.randn(2, 1, 1, 64, 16)
    pos_T = torch.arange(64.0)
    turned = model.encoding.extended(plan).rotate(q, k, pos_T, pos_T)
    actual = turned[0] @ turned[1].mT / turned[0].shape[-1] ** 0.5
    lengths = torch.nn.functional.softplus(q.double())[0, 0, :, None] * torch.nn.functional.softplus(k.double())[0, 0]
    delta = model.state_dict()["blocks.0.encoding.delta_HK"].double().clamp(-2 * math.pi, 0)[0]
    angle = (pos_T[:, None] - pos_T)[..., None] * w.double() - delta
    torch.testing.assert_close(actual[0, 0], ((lengths * angle.cos()).sum(-1) / 4).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("length", [40, 64])
def test_yarn_of_a_model_multiplies_the_tables(
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
    length: int,
    kv_heads: int,
) -> None:
    """Cosines and sines of queries and keys times A, as public code has it."""
    model = make_model("rope", kv_heads=kv_heads)
    w, squared = theirs("yarn", 16, 1e4, 16, factor=length / 16)
    expected = by_hand(model, length, frequencies=w.double().tolist(), amplitude=squared**0.5)
    for actual in every_path(model, length, stack.parse("yarn").plan(model.encoding, 16, length)):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


def test_yarn_scales_the_channels_that_do_not_turn_too(
    make_model: Callable[..., Model], by_hand: Callable[..., Tensor], logits: Callable[..., Tensor]
) -> None:
    model = make_model("partial-rope:fraction=0.5")
    w, squared = theirs("yarn", 16, 1e4, 16, factor=4.0, partial_rotary_factor=0.5)
    # The channels that turn come first, half and half of them.
    expected = by_hand(model, 64, frequencies=w.double().tolist(), factor=lambda h, i: squared)
    actual = logits(model, 64, stack.parse("yarn").plan(model.encoding, 16, 64))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("text", "kind", "parameters"),
    [
        ("dynamic-ntk", "dynamic", {"factor": 2.0}),
        ("llama3", "llama3", {"factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        ("p-rope:p=0.5", "proportional", {"partial_rotary_factor": 0.5}),
        (
            f"longrope:long=({RISING})", "longrope",
            {"factor": 3.0, "long_factor": [float(x) for x in RISING.split(",")], "short_factor": [1.0] * 8},
        ),
    ],
)  # fmt: skip
def test_models(
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    logits: Callable[..., Tensor],
    text: str,
    kind: str,
    parameters: dict[str, Any],
) -> None:
    model = make_model("rope")
    w, squared = theirs(kind, 16, 1e4, 16, 48, **parameters)
    expected = by_hand(model, 48, frequencies=w.double().tolist(), amplitude=squared**0.5)
    actual = logits(model, 48, stack.parse(text).plan(model.encoding, 16, 48))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


NEUTRAL = [
    "ntk:factor=1", "dynamic-ntk:factor=1", "ntk-by-parts:factor=1", "ntk-by-parts:factor=1,ramp=turns",
    "yarn:factor=1", "yarn:factor=1,ramp=turns", "longrope:factor=1",
    "longrope:factor=1,long=(1,1,1,1,1,1,1,1),short=(1,1,1,1,1,1,1,1)", "llama3:factor=1", "p-rope:p=1",
]  # fmt: skip
LEFT_OUT = ["ntk", "ntk-by-parts", "ntk-by-parts:ramp=turns", "yarn", "yarn:fast=8", "longrope", "llama3"]


@pytest.mark.parametrize("text", NEUTRAL)
def test_neutral_parameters_are_the_plain_plan(text: str, logits: Callable[..., Tensor], make_model: Any) -> None:
    model = make_model("rope")
    for length in (8, 16) if text.startswith("dynamic-ntk") else (8, 16, 48):
        plan = stack.parse(text).plan(model.encoding, 16, length)
        assert plan == PLAIN
        assert torch.equal(logits(model, length, plan), logits(model, length))


@pytest.mark.parametrize("text", [*LEFT_OUT, "dynamic-ntk"])
def test_nothing_changes_within_the_training_length(text: str) -> None:
    encoding = encoding_of("rope", 16, 16, 1e4)
    for length in (1, 8, 16):
        assert stack.parse(text).plan(encoding, 16, length) == PLAIN
    assert stack.parse(text).plan(encoding, 16, 17) != PLAIN


@pytest.mark.parametrize("text", LEFT_OUT)
def test_a_factor_left_out_is_computed_for_each_length(text: str) -> None:
    encoding = encoding_of("rope", 32, 64, 1e4)
    for length in (96, 128, 1024):
        given = f"{text}{',' if ':' in text else ':'}factor={length / 64}"
        assert stack.parse(text).plan(encoding, 64, length) == stack.parse(given).plan(encoding, 64, length)
        assert stack.parse(given).plan(encoding, 64, 200) == stack.parse(given).plan(encoding, 64, 400)
        assert stack.parse(text).plan(encoding, 64, length) != stack.parse(text).plan(encoding, 64, length + 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((f"{name}:factor={value}", f"{name}: factor must be a positive number, not {value}")
          for name in ("ntk", "dynamic-ntk", "ntk-by-parts", "longrope", "llama3") for value in ("0", "-2")),
        ("yarn:factor=0", "factor must be a positive number, not 0"),
        ("ntk:factor=inf", "ntk: factor=inf is not a finite number"),
        ("ntk-by-parts:fast=1", "fast must be more turns than slow, and slow positive, not 1, 1"),
        ("yarn:slow=0", "fast must be more turns than slow, and slow positive, not 32, 0"),
        ("llama3:slow=4", "llama3: fast must be more turns than slow, and slow positive, not 4, 4"),
        ("yarn:ramp=steps", "yarn: ramp=steps is not pairs or turns"),
        ("longrope:long=(1,2,x)", "longrope: long=1,2,x is not a list of positive numbers: long=(1,1.5,4,8)"),
        ("longrope:short=(1,0)", "longrope: short=1,0 is not a list of positive numbers: short=(1,1.5,4,8)"),
        ("longrope:long=(1,nan)", "is not a list of positive numbers"),
        ("longrope:long=(1,inf)", "is not a list of positive numbers"),
        ("p-rope:p=1.5", "p-rope: p must be between 0 and 1, not 1.5"),
        ("p-rope:p=-0.1", "p-rope: p must be between 0 and 1, not -0.1"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(text)


@pytest.mark.parametrize("which", ["long", "short"])
def test_a_list_of_another_length_is_refused(which: str) -> None:
    made = stack.parse(f"longrope:{which}=(1,2,3)")
    with pytest.raises(ValueError, match="longrope: a list has 3 numbers, and the encoding 8 pairs"):
        made.plan(encoding_of("rope", 16, 16, 1e4), 16, 32 if which == "long" else 16)


def test_scaled_frequencies_are_what_a_model_turns_by() -> None:
    encoding = encoding_of("rope", 16, 16, 1e4)
    plan = stack.parse("yarn").plan(encoding, 16, 64)
    extended = encoding.extended(plan)
    assert isinstance(extended, RoPE)
    assert torch.equal(extended.scaled_frequencies(CPU), frequencies(encoding, plan))
