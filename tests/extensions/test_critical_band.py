"""The band of pairs: its frequencies, and a search that finds the band of a known valley."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.evaluation import fitting
from extrapolate.extensions import stack
from extrapolate.extensions.critical_band import CriticalBand

L, M = 16, 8
ENCODING = RoPE(Dims(32, 2, 16, L))
ROPE = [10 ** (-m / 2) for m in range(M)]  # 16 channels, theta 10 000


@pytest.mark.parametrize(
    ("text", "band", "s"),
    [
        ("first=2,width=3", range(2, 5), 3),
        ("first=0,width=1,factor=5", range(1), 5),
        ("first=3", range(3, 8), 3),
        ("first=7,width=9,factor=2", range(7, 8), 2),
        ("first=0", range(8), 3),
    ],
)
def test_only_the_band_is_divided(
    text: str, band: range, s: float, make_model: Any, by_hand: Any, every_path: Any
) -> None:
    made = stack.parse(f"critical-band:{text}")
    assert made.to_fit is None
    plan = made.plan(ENCODING, L, 48)
    assert plan == Plan(frequency_scale=tuple(1 / s if m in band else 1.0 for m in range(M)))
    model = make_model("rope", kv_heads=1)
    expected = by_hand(model, 48, frequencies=[w / s if m in band else w for m, w in enumerate(ROPE)])
    for actual in every_path(model, 48, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("text", ["first=8", "first=3,width=0", "first=99", "first=0,factor=1"])
def test_an_empty_band_and_a_factor_of_one_change_nothing(text: str) -> None:
    assert stack.parse(f"critical-band:{text}").plan(ENCODING, L, 48) == PLAIN


def test_a_band_of_all_pairs_is_interpolation(make_model: Any, logits: Callable[..., Tensor]) -> None:
    model = make_model("rope", L)
    plans = [stack.parse(text).plan(model.encoding, L, 48) for text in ("critical-band:first=0", "pi")]
    torch.testing.assert_close(*(logits(model, 48, plan) for plan in plans), rtol=1e-4, atol=1e-4)


def test_nothing_changes_within_the_training_length() -> None:
    for length in (1, L):
        assert stack.parse("critical-band:first=2").plan(ENCODING, L, length) == PLAIN


@pytest.mark.parametrize(("first", "width"), [(0, 8), (3, 2), (2, 5), (7, 1), (8, 0), (0, 1)])
def test_the_search_finds_a_band_and_tries_as_often_as_it_says(first: int, width: int) -> None:
    """The loss counts the pairs that are wrongly divided twice, and those wrongly left alone 20 times."""
    tried: list[tuple[int, int]] = []
    wanted = set(range(first, first + width))

    def loss(candidate: CriticalBand) -> float:
        assert candidate.factor == 4.0
        tried.append((candidate.first, candidate.width))
        band = set(range(candidate.first, candidate.first + candidate.width))
        return 2 * len(band - wanted) + 20 * len(wanted - band)

    found = CriticalBand(factor=4.0).found(ENCODING, L, 64, loss)
    assert not found.unfitted()
    assert set(range(found.first, found.first + found.width)) == wanted
    assert tried[: M + 1] == [(k, M - k) for k in range(M + 1)]
    assert tried[M + 1 :] == [(found.first, w) for w in range(1, M - found.first)]
    assert len(tried) <= CriticalBand().most_tries(M)
    assert len(set(tried)) == len(tried)


def test_of_equally_good_bands_the_first_is_kept() -> None:
    found = CriticalBand().found(ENCODING, L, 64, lambda candidate: 1.0)
    assert (found.first, found.width) == (0, M)


def test_the_search_is_made_once_for_a_length_with_whatever_else_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    class Stub:
        encoding = ENCODING

    def loss(model: Any, split: Any, windows: Any, plan: Plan, precision: str, *, progress: Any) -> float:
        plans.append(plan)
        progress(30, 1.0)
        scale = plan.frequency_scale or (1.0,) * M
        return sum(9 * abs(f - 0.25) if m in (2, 3) else abs(f - 1.0) for m, f in enumerate(scale))

    monkeypatch.setattr(fitting, "validation_windows", lambda *_: [SimpleNamespace(start_W=[0] * 3, length=10)])
    monkeypatch.setattr(fitting, "validation_loss", loss)
    made = stack.parse("critical-band:layers=global + log-n")

    def plan_of(candidate: stack.ExtensionStack) -> Plan:
        return candidate.plan(ENCODING, L, 64).of_layer(ENCODING)

    told: list[int] = []
    found = fitting.fitted(made, plan_of, Stub(), None, L, 64, "fp32", lambda inputs, loss: told.append(inputs))
    assert len(plans) == (M + 1) + (M - 2 - 1)
    assert sum(told) == 30 * 2 * M == fitting.inputs_of_fit(made, Stub(), None, 64)
    assert found.label() == "Critical band(2, width=2, global layers) + log-n"
    assert found.to_fit is None
    assert all(plan.log_length == L for plan in plans)
    within = fitting.fitted(made, plan_of, Stub(), None, L, L, "fp32")
    assert within.plan(ENCODING, L, L) == PLAIN


def test_stand_ins() -> None:
    made = stack.parse("critical-band:factor=2")
    assert made.to_fit is made.parts[0]
    assert made.fitted(0.0).plan(ENCODING, L, 64) == PLAIN
    assert made.fitted(0.5).plan(ENCODING, L, 64) == Plan(frequency_scale=(0.5,) * M)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("first=-1", "critical-band: first must be at least 0, not -1"),
        ("first=1,width=-1", "critical-band: width must be at least 0, not -1"),
        ("factor=0", "critical-band: factor must be a positive number, not 0"),
        ("width=3", "critical-band: a width needs first="),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(f"critical-band:{text}")
