"""Fitting a constant: where nothing is tried; with which windows, precision and range; and the golden section."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from extrapolate.encodings.base import Dims
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.evaluation import fitting
from extrapolate.evaluation.losses import OnBatch, ignored
from extrapolate.extensions.stack import ExtensionStack, parse

L = 16
STACK = parse("temperature")
MODEL = SimpleNamespace(encoding=RoPE(Dims(32, 2, 16, L)))


class Tried:
    """Stands in for the validation text: the loss is a valley over the constant, and every trial is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, valley: float) -> None:
        self.windows: list[tuple[Any, ...]] = []
        self.constants: list[float] = []
        self.precisions: set[str] = set()
        self.valley = valley
        monkeypatch.setattr(fitting, "validation_windows", self.windows_of)
        monkeypatch.setattr(fitting, "validation_loss", self.loss)

    def windows_of(self, *arguments: Any) -> str:
        self.windows.append(arguments)
        return "the windows"

    def loss(
        self, model: str, split: str, windows: str, plan: Plan, precision: str, *, progress: Callable[[int], None]
    ) -> float:
        assert (model, split, windows) == ("the model", "the split", "the windows")
        progress(7, 1.0)
        self.constants.append(plan.logit_scale)
        self.precisions.add(precision)
        return abs(plan.logit_scale - self.valley)


def plan_of(stack: ExtensionStack) -> Plan:
    """The constant itself as the plan's logit_scale."""
    return Plan(logit_scale=stack.parts[0].arguments()["c"])


def fitted(length: int, precision: str = "fp32", progress: OnBatch = ignored) -> float:
    stack = fitting.fitted(STACK, plan_of, "the model", "the split", L, length, precision, progress)
    return stack.parts[0].arguments()["c"]


def test_up_to_the_training_length_nothing_is_tried_and_the_next_token_is_fitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried, told = Tried(monkeypatch, 0.5), []
    assert [fitted(length) for length in (1, L - 1, L)] == [0.0] * 3
    assert not tried.windows
    assert not tried.constants
    assert fitted(L + 1, "bf16", lambda inputs, loss: told.append(inputs)) == pytest.approx(0.5, abs=0.01)
    assert tried.windows == [("the split", L + 1, 8192)]
    assert tried.precisions == {"bf16"}
    assert told == [7] * len(tried.constants) == [7] * 12  # two to begin with, and one a step


def test_a_fit_takes_as_many_inputs_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve times the windows: of 50 tokens six windows of 8, of 17 two."""
    split = SimpleNamespace(lengths=np.array([50, 17, 8]))
    assert fitting.inputs_of_fit(STACK, MODEL, split, 8) == 12 * 8 * 8
    monkeypatch.setattr(fitting, "FIT_TARGETS", 24)
    assert fitting.inputs_of_fit(STACK, MODEL, split, 8) == 12 * 3 * 8


@pytest.mark.parametrize("factor", [1.25, 4, 6, 100])
def test_the_range_ends_at_1_and_at_a_half_or_what_keeps_scores_positive(factor: float, monkeypatch) -> None:
    """With valleys outside the range the ends are found, to the width of what ten steps leave."""
    low = max(-0.5, -0.9 / math.log(factor))
    tried = Tried(monkeypatch, -9.0)
    assert fitted(int(factor * L)) == pytest.approx(low, abs=0.02)
    assert all(low <= constant <= 1.0 for constant in tried.constants)
    assert all(1 + constant * math.log(factor) > 0 for constant in tried.constants)
    Tried(monkeypatch, 9.0)
    assert fitted(int(factor * L)) == pytest.approx(1.0, abs=0.02)


def test_constants_have_three_decimals(monkeypatch: pytest.MonkeyPatch) -> None:
    Tried(monkeypatch, 1 / 3)
    constant = fitted(4 * L)
    assert constant == round(constant, 3) != round(constant, 2)


@pytest.mark.parametrize("valley", [0.0, 0.123, 0.5, 0.9, 0.999])
def test_each_step_keeps_the_golden_share_of_the_range_and_the_lower_of_two(valley: float) -> None:
    """0.618 of the range a step, and one new value: what is returned is the better of the last two."""
    tried: list[float] = []

    def function(x: float) -> float:
        tried.append(x)
        return math.cosh(x - valley)

    found = fitting.lowest(function, 0.0, 1.0, 5)
    assert len(tried) == 7
    assert tried[:2] == pytest.approx([0.381966, 0.618034], abs=1e-6)
    assert found == min(tried, key=lambda x: abs(x - valley))
    assert abs(found - valley) < 0.618034**6
    assert fitting.lowest(function, 0.0, 1.0, 0) in tried[:2]


def test_the_constant_of_the_recipe_is_that_of_its_formula() -> None:
    assert STACK.fitted(0.25).plan(SimpleNamespace(), L, 4 * L) == Plan(logit_scale=1 + 0.25 * math.log(4))
    assert STACK.fitted(0.0).plan(SimpleNamespace(), L, 4 * L) == PLAIN
