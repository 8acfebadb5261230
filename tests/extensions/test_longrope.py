"""LongRoPE's search for its factors. Its formulas are in test_frequencies.py."""

import math
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from extrapolate.encodings.base import Dims
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.errors import UserError
from extrapolate.evaluation import fitting
from extrapolate.extensions import stack
from extrapolate.extensions.longrope import LongRoPE

L, M, S = 16, 8, 4.0
ENCODING = RoPE(Dims(32, 2, 16, L))
VALLEY = np.array([1, 1, 1.2, 1.5, 2, 3, 4, 4])
STARTS = ["longrope", "longrope:long=(4,4,4,4,4,4,4,4)", "longrope:long=(1,1,1,1,1,1,1,1)"]


def factors_of(plan: Plan) -> np.ndarray:
    return 1 / np.array(plan.frequency_scale or (1.0,) * M)


def far_from(target: np.ndarray, plan: Plan) -> float:
    return float(np.square(np.log(factors_of(plan)) - np.log(target)).sum())


def found(search: int, target: np.ndarray = VALLEY) -> tuple[list[Plan], Plan]:
    """The plans that were tried, and the one of what was found."""
    tried: list[Plan] = []

    def loss(candidate: LongRoPE) -> float:
        assert candidate.factor is None
        tried.append(candidate.plan(ENCODING, L, 64))
        return far_from(target, tried[-1])

    made = LongRoPE(search=search).found(ENCODING, L, 64, loss)
    assert not made.unfitted()
    return tried, made.plan(ENCODING, L, 64)


@pytest.mark.parametrize("search", [32, 160])
def test_it_tries_as_often_as_it_says_and_finds_the_best_of_what_it_tried(search: int) -> None:
    tried, best = found(search)
    assert len(tried) == search == LongRoPE(search=search).most_tries(M)
    assert far_from(VALLEY, best) == min(far_from(VALLEY, plan) for plan in tried)


def test_more_tries_come_nearer_to_a_valley_than_any_start() -> None:
    at_start = min(far_from(VALLEY, stack.parse(text).plan(ENCODING, L, 64)) for text in STARTS)
    assert far_from(VALLEY, found(512)[1]) < 0.02 < at_start


@pytest.mark.parametrize("text", STARTS)
def test_it_begins_with_the_known_lists(text: str) -> None:
    """So it finds each of them again if nothing is better, to the four digits that a list has."""
    target = factors_of(stack.parse(text).plan(ENCODING, L, 64))
    np.testing.assert_allclose(factors_of(found(32, target)[1]), target, rtol=6e-4)
    ntk = S ** (np.arange(M) / (M - 1))
    np.testing.assert_allclose(factors_of(found(32, ntk)[1]), ntk, rtol=6e-4)


def test_lists_rise_from_1_to_1_plus_s_and_a_search_can_be_repeated() -> None:
    tried, best = found(64)
    for plan in tried:
        factors = factors_of(plan)
        assert (np.diff(factors) >= -1e-9).all()
        assert factors.min() >= 1 - 1e-9
        assert factors.max() <= (1 + S) * 1.001
        assert plan.logit_scale == 1 + math.log(S) / math.log(L)
    assert max(factors_of(plan).max() for plan in tried) > S
    assert found(64) == (tried, best)


def test_the_factor_is_the_one_given() -> None:
    seen: list[float] = []

    def loss(candidate: LongRoPE) -> float:
        assert candidate.factor == 2.0
        assert candidate.short == "1,1,1,1,1,1,1,2"
        seen.append(factors_of(candidate.plan(ENCODING, L, 64)).max())
        return 0.0

    made = LongRoPE(factor=2.0, search=32, short="1,1,1,1,1,1,1,2").found(ENCODING, L, 64, loss)
    assert max(seen) <= 3.001
    assert made.plan(ENCODING, L, L).frequency_scale == (1.0,) * 7 + (0.5,)


def test_it_is_fitted_for_each_length_with_whatever_else_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    def loss(model: Any, split: Any, windows: Any, plan: Plan, precision: str, *, progress: Any) -> float:
        plans.append(plan)
        progress(30, 1.0)
        return far_from(VALLEY, plan)

    monkeypatch.setattr(fitting, "validation_windows", lambda *_: [SimpleNamespace(start_W=[0] * 3, length=10)])
    monkeypatch.setattr(fitting, "validation_loss", loss)
    made, model = stack.parse("longrope:search=32 + log-n"), SimpleNamespace(encoding=ENCODING)
    told: list[int] = []
    arguments = (made, lambda candidate: candidate.plan(ENCODING, L, 64), model, None, L)
    best = fitting.fitted(*arguments, 64, "fp32", lambda inputs, loss: told.append(inputs))
    assert len(plans) == 32
    assert sum(told) == 30 * 32 == fitting.inputs_of_fit(made, model, None, 64)
    assert best.to_fit is None
    assert all(plan.log_length == L for plan in plans)
    assert far_from(VALLEY, best.plan(ENCODING, L, 64)) == min(far_from(VALLEY, plan) for plan in plans)
    within = fitting.fitted(*arguments, L, "fp32")
    assert within.plan(ENCODING, L, L).frequency_scale == PLAIN.frequency_scale
    assert len(plans) == 32, "nothing is tried at the training length"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("search=16", "longrope: search must be a multiple of 16, at least 32, not 16"),
        ("search=40", "longrope: search must be a multiple of 16, at least 32, not 40"),
        ("search=32,long=(1,2)", "longrope: there is nothing to search for if the long list is given"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(f"longrope:{text}")


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(UserError, match=re.escape("pip install 'extrapolate[search]'")):
        LongRoPE(search=32).found(ENCODING, L, 64, lambda _: 0.0)
