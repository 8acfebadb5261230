"""MrRoPE, against its formula in float64, pair by pair."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding
from extrapolate.encodings.plan import PLAIN
from extrapolate.encodings.rope import RoPE
from extrapolate.extensions import stack
from extrapolate.model.model import Model

SPECTRA = [
    (16, 1e4, 64), (16, 5e5, 512), (64, 1e4, 512), (64, 5e5, 8192), (128, 5e5, 8192), (128, 1e4, 4096), (16, 1e4, 4),
]  # fmt: skip


def rope(d: int, theta: float, seq_len: int) -> Encoding:
    return RoPE(Dims(4 * d, 4, d, seq_len), theta=theta)


def divisors(d: int, theta: float, seq_len: int, s: float, form: str, fast: float = 32, slow: float = 1) -> list[float]:
    """lambda_m as products of one factor for every pair from the ramp's first on, as the paper has them."""

    def pair_of(turns: float) -> float:
        return d * math.log(seq_len / (2 * math.pi * turns)) / (2 * math.log(theta))

    low, high = max(0, math.floor(pair_of(fast))), min(d - 1, math.ceil(pair_of(slow)))
    found = []
    for m in range(d // 2):
        product = 1.0
        for step in range(1, m - low + 1):
            if m >= high:
                product = s
                break
            share = 1 / (high - low) if form == "uni" else 2 * step / ((high - low) * (high - low + 1))
            product *= s**share
        found.append(product)
    return found


@pytest.mark.parametrize("form", ["uni", "pro"])
@pytest.mark.parametrize("s", [1.5, 4.0, 16.0])
@pytest.mark.parametrize(("d", "theta", "seq_len"), SPECTRA)
def test_every_pair_is_divided_by_the_papers_product(d: int, theta: float, seq_len: int, s: float, form: str) -> None:
    plan = stack.parse(f"mrrope:factor={s},form={form}").plan(rope(d, theta, seq_len), seq_len, 2 * seq_len)
    expected = divisors(d, theta, seq_len, s, form)
    assert [1 / factor for factor in plan.frequency_scale] == pytest.approx(expected, rel=1e-10)
    assert plan.logit_scale == pytest.approx((0.1 * math.log(s) + 1) ** 2)


def test_the_ends_of_the_ramp_can_be_moved() -> None:
    for form in ("uni", "pro"):
        text = f"mrrope:factor=4,form={form},fast=8,slow=2"
        plan = stack.parse(text).plan(rope(64, 1e4, 512), 512, 1024)
        expected = divisors(64, 1e4, 512, 4, form, fast=8, slow=2)
        assert [1 / factor for factor in plan.frequency_scale] == pytest.approx(expected, rel=1e-10)


def test_pro_divides_later_than_uni() -> None:
    """L 512, theta 10 000, K 64: the ramp goes from pair 3 to 16."""
    encoding = rope(64, 1e4, 512)
    uni, pro = (stack.parse(text).plan(encoding, 512, 4096).frequency_scale for text in ("mrrope:form=uni", "mrrope"))
    for m in range(32):
        if 3 < m < 16:
            assert 1 > pro[m] > uni[m] > 1 / 8
        else:
            assert pro[m] == uni[m] == (1 if m < 16 else 1 / 8)


def test_what_is_left_out_follows_the_length_and_changes_nothing_within_l() -> None:
    encoding = rope(32, 1e4, 64)
    for form in ("uni", "pro"):
        for length in (1, 64):
            assert stack.parse(f"mrrope:form={form}").plan(encoding, 64, length) == PLAIN
        assert stack.parse(f"mrrope:form={form},factor=1").plan(encoding, 64, 256) == PLAIN
        given = stack.parse(f"mrrope:form={form},factor=1.5").plan(encoding, 64, 200)
        assert stack.parse(f"mrrope:form={form}").plan(encoding, 64, 96) == given
    assert stack.parse("mrrope").plan(encoding, 64, 96) == stack.parse("mrrope:form=pro").plan(encoding, 64, 96)
    assert stack.parse("mrrope:factor=0.5").plan(encoding, 64, 64).logit_scale == 1.0


@pytest.mark.parametrize("form", ["uni", "pro"])
def test_a_model_multiplies_its_tables(
    make_model: Callable[..., Model], by_hand: Callable[..., Tensor], every_path: Callable[..., list[Tensor]], form: str
) -> None:
    model = make_model("rope", kv_heads=1)
    frequencies = [10 ** (-m / 2) / by for m, by in enumerate(divisors(16, 1e4, 16, 3.0, form))]
    expected = by_hand(model, 48, frequencies=frequencies, amplitude=0.1 * math.log(3) + 1)
    for actual in every_path(model, 48, stack.parse(f"mrrope:form={form}").plan(model.encoding, 16, 48)):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mrrope:factor=0", "mrrope: factor must be a positive number, not 0"),
        ("mrrope:fast=1", "mrrope: fast must be more turns than slow, and slow positive, not 1, 1"),
        ("mrrope:form=late", "mrrope: form=late is not pro or uni"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stack.parse(text)
