"""What is tried when a constant is fitted: where nothing is, with which plan, precision and range."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation import fitting
from extrapolate.extensions.recipe import Recipe, parse

L = 16


class Tried:
    """Stands in for the validation text: the loss is a valley over the constant, and every trial is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, valley: float) -> None:
        self.windows: list[tuple[Any, ...]] = []
        self.trials: list[tuple[Plan, str]] = []
        self.valley = valley
        monkeypatch.setattr(fitting, "validation_windows", self.windows_of)
        monkeypatch.setattr(fitting, "validation_loss", self.loss)

    def windows_of(self, *arguments: Any) -> str:
        self.windows.append(arguments)
        return "the windows"

    def loss(
        self,
        model: object,
        split: object,
        windows: object,
        plan: Plan,
        precision: str,
        *,
        progress: Callable[[int], None],
    ) -> float:
        assert (model, split, windows) == ("the model", "the split", "the windows")
        progress(7)
        self.trials.append((plan, precision))
        return abs(plan.logit_scale - self.valley)


def constants() -> Recipe:
    """A recipe whose constant is the plan's logit_scale."""
    return parse("temperature")


def plan_of(recipe: Recipe) -> Plan:
    return Plan(logit_scale=recipe.parts[0].arguments()["c"])


def fitted(length: int, precision: str = "fp32", progress: Callable[[int], None] = lambda inputs: None) -> float:
    recipe = fitting.fitted(constants(), plan_of, "the model", "the split", L, length, precision, progress)
    return recipe.parts[0].arguments()["c"]


@pytest.mark.parametrize("length", [1, L - 1, L])
def test_up_to_the_training_length_the_constant_is_0_and_nothing_is_tried(length: int, monkeypatch) -> None:
    tried = Tried(monkeypatch, 0.5)
    assert fitted(length) == 0.0
    assert not tried.windows
    assert not tried.trials


def test_one_token_more_is_fitted_to_windows_of_that_length(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, told = Tried(monkeypatch, 0.5), []
    assert fitted(L + 1, progress=told.append) == pytest.approx(0.5, abs=0.01)
    assert told == [7] * 12
    assert tried.windows == [("the split", L + 1, 8192)]
    assert len(tried.trials) == 12  # two to begin with, and one a step


def test_a_fit_takes_as_many_inputs_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve times the windows: of 50 tokens six windows of 8, of 17 two."""
    split = SimpleNamespace(lengths=np.array([50, 17, 8]))
    assert fitting.inputs_of_fit(split, 8) == 12 * 8 * 8
    monkeypatch.setattr(fitting, "FIT_TARGETS", 24)
    assert fitting.inputs_of_fit(split, 8) == 12 * 3 * 8


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_it_is_fitted_as_the_precision_runs_the_model(precision: str, monkeypatch) -> None:
    tried = Tried(monkeypatch, 0.5)
    fitted(2 * L, precision)
    assert {used for _, used in tried.trials} == {precision}


@pytest.mark.parametrize("factor", [1.25, 4, 6, 100])
def test_the_range_ends_at_1_and_at_a_half_or_what_keeps_scores_positive(factor: float, monkeypatch) -> None:
    """With valleys outside the range the ends are found, to the width of what ten steps leave."""
    low = max(-0.5, -0.9 / math.log(factor))
    tried = Tried(monkeypatch, -9.0)
    assert fitted(int(factor * L)) == pytest.approx(low, abs=0.02)
    assert all(low <= plan.logit_scale <= 1.0 for plan, _ in tried.trials)
    tried = Tried(monkeypatch, 9.0)
    assert fitted(int(factor * L)) == pytest.approx(1.0, abs=0.02)


def test_constants_have_three_decimals(monkeypatch: pytest.MonkeyPatch) -> None:
    Tried(monkeypatch, 1 / 3)
    constant = fitted(4 * L)
    assert constant == round(constant, 3) != round(constant, 2)


def test_each_step_keeps_the_golden_share_of_the_range_and_the_lower_of_two() -> None:
    """0.618 of the range a step, and one new value: what is returned is the better of the last two."""
    for valley in (0.123, 0.9):
        tried: list[float] = []

        def function(x: float, valley: float = valley, tried: list[float] = tried) -> float:
            tried.append(x)
            return (x - valley) ** 2

        found = fitting.lowest(function, 0.0, 1.0, 5)
        assert len(tried) == 7
        assert tried[:2] == pytest.approx([0.381966, 0.618034], abs=1e-6)
        assert found == min(tried, key=lambda x: abs(x - valley))
        assert abs(found - valley) < 0.618034**6
        assert fitting.lowest(lambda x, v=valley: (x - v) ** 2, 0.0, 1.0, 0) in tried[:2]


def test_the_real_recipe_is_what_stands_in_here() -> None:
    assert constants().fitted(0.25).plan(SimpleNamespace(), L, 4 * L) == Plan(logit_scale=1 + 0.25 * math.log(4))
    assert constants().fitted(0.0).plan(SimpleNamespace(), L, 4 * L) == PLAIN
