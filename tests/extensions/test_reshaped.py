"""Clipped RoPE's taper and whole wavelengths, against their formulas in float64."""

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding
from extrapolate.encodings.plan import PLAIN
from extrapolate.encodings.rope import RoPE
from extrapolate.extensions import stack
from extrapolate.model.model import Model

L = 16
ROPE = [10 ** (-m / 2) for m in range(8)]  # 16 channels, theta 10 000


def rope(d: int, theta: float = 1e4, seq_len: int = 64) -> Encoding:
    return RoPE(Dims(4 * d, 4, d, seq_len), theta=theta)


def scale(text: str, encoding: Encoding, length: int = 256, seq_len: int = 64) -> list[float]:
    return list(stack.parse(text).plan(encoding, seq_len, length).frequency_scale)


def tapered(count: int, n: int) -> list[float]:
    found = [1.0] * count
    for k in range(n):
        found[count - n + k] = 0.5 * (1 + math.cos(math.pi * k / (n - 1)))
    return found


@pytest.mark.parametrize(("d", "n"), [(128, 20), (64, 10), (32, 5), (16, 2), (48, 8)])
def test_the_taper_has_the_authors_share_of_the_pairs(d: int, n: int) -> None:
    for length in (32, 64, 256):
        assert scale("clipped-rope", rope(d), length) == pytest.approx(tapered(d // 2, n), abs=1e-15)
    assert scale("clipped-rope", rope(d)) == scale(f"clipped-rope:pairs={n}", rope(d))


@pytest.mark.parametrize("n", [2, 3, 7, 16])
def test_the_taper_leaves_its_first_pair_and_stops_the_last(n: int) -> None:
    found = scale(f"clipped-rope:pairs={n}", rope(32))
    assert found == pytest.approx(tapered(16, n), abs=1e-15)
    assert found[: 17 - n] == [1.0] * (17 - n)
    assert found[-1] == 0.0
    assert all(one > other for one, other in zip(found[16 - n :], found[17 - n :], strict=False))


def test_no_taper_and_one_of_a_pair_change_nothing_and_a_larger_one_takes_every_pair() -> None:
    for n in (0, 1):
        assert stack.parse(f"clipped-rope:pairs={n}").plan(rope(32), 64, 256) == PLAIN
    assert scale("clipped-rope:pairs=99", rope(32)) == scale("clipped-rope:pairs=16", rope(32))


@pytest.mark.parametrize(("d", "theta"), [(16, 1e4), (64, 1e4), (64, 5e5), (128, 1e6)])
def test_wavelengths_are_whole_numbers_of_tokens_and_the_nearest(d: int, theta: float) -> None:
    encoding = rope(d, theta)
    for text, bases in (("resonance", [1.0] * (d // 2)), ("resonance:base=(yarn:factor=4)", scale("yarn", encoding))):
        found = scale(text, encoding)
        for m in range(d // 2):
            w = theta ** (-2 * m / d)
            wavelength, plain = 2 * math.pi / (w * found[m]), 2 * math.pi / (w * bases[m])
            assert wavelength == pytest.approx(round(wavelength), rel=1e-12)
            assert abs(wavelength - plain) <= 0.5 + 1e-6


def test_positions_a_wavelength_apart_have_one_angle() -> None:
    encoding = rope(16, 1e4)
    turned = [w * factor for w, factor in zip(ROPE, scale("resonance", encoding), strict=True)]
    for w, wavelength in zip(turned[:4], (6, 20, 63, 199), strict=True):
        for i in range(3):
            assert math.cos((i + wavelength) * w) == pytest.approx(math.cos(i * w), abs=1e-9)
            assert math.sin((i + wavelength) * w) == pytest.approx(math.sin(i * w), abs=1e-9)


def test_what_stands_still_goes_on_standing_still() -> None:
    assert scale("resonance:base=(p-rope:p=0.5)", rope(16))[4:] == [0.0] * 4


@pytest.mark.parametrize("name", ["resonance", "clipped-rope:pairs=3"])
@pytest.mark.parametrize("base", ["yarn", "yarn:factor=8", "ntk", "mrrope:form=uni", "longrope", "resonance"])
def test_a_base_is_applied_first_and_sharpens_as_ever(name: str, base: str) -> None:
    encoding = rope(32)
    plain = stack.parse(base).plan(encoding, 64, 256)
    text = f"{name}{',' if ':' in name else ':'}base=({base})"
    plan = stack.parse(text).plan(encoding, 64, 256)
    assert plan.logit_scale == plain.logit_scale
    for m, (factor, of_base) in enumerate(zip(plan.frequency_scale, plain.frequency_scale, strict=True)):
        if name == "resonance":
            wavelength = 2 * math.pi * 1e4 ** (m / 16) / of_base
            assert factor == pytest.approx(of_base * wavelength / round(wavelength))
        else:
            assert factor == pytest.approx(of_base * tapered(16, 3)[m])
    assert stack.parse(stack.parse(text).text).plan(encoding, 64, 256) == plan


@pytest.mark.parametrize(
    ("text", "factors", "amplitude"),
    [
        ("clipped-rope:pairs=5", [1, 1, 1, *tapered(5, 5)], 1.0),
        ("resonance", [2 * math.pi / w / round(2 * math.pi / w) for w in ROPE], 1.0),
        (
            "clipped-rope:pairs=4,base=(yarn:factor=3,ramp=turns,fast=1.01)",
            [a * b for a, b in zip([1, 1, *[1 / 3] * 6], tapered(8, 4), strict=True)],
            0.1 * math.log(3) + 1,
        ),
    ],
)
def test_models(
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
    text: str,
    factors: list[float],
    amplitude: float,
) -> None:
    model = make_model("rope", kv_heads=1)
    if "turns" in text:  # pair 1 turns 0.8 times within 16 tokens
        factors[1] = 1 / 3
    frequencies = [w * factor for w, factor in zip(ROPE, factors, strict=True)]
    expected = by_hand(model, 48, frequencies=frequencies, amplitude=amplitude)
    for actual in every_path(model, 48, stack.parse(text).plan(model.encoding, L, 48)):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clipped-rope:pairs=-1", "clipped-rope: pairs must be at least 0, not -1"),
        ("clipped-rope:base=pi", "clipped-rope: the base must be an extension of frequencies, not pi"),
        ("resonance:base=(log-n)", "resonance: the base must be an extension of frequencies, not log-n"),
        ("resonance:base=yarm", "unknown extension 'yarm'; did you mean 'yarn'?"),
        ("resonance:base=(yarn:fator=2)", "yarn has no argument 'fator'; did you mean 'factor'?"),
        ("resonance + yarn", "Resonance and YaRN both change the frequencies"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(text)
