"""Fitting a constant."""

import math

import pytest

from extrapolate.evaluation import fitting
from extrapolate.evaluation.fitting import lowest
from extrapolate.extensions.recipe import parse
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model


@pytest.mark.parametrize("valley", [-0.5, -0.2, 0.0, 0.31, 0.999])
def test_the_lowest_point_of_a_valley_is_found(valley: float) -> None:
    calls = []

    def function(x: float) -> float:
        calls.append(x)
        return math.cosh(x - valley)

    assert lowest(function, -0.5, 1.0, 12) == pytest.approx(valley, abs=0.01)
    assert len(calls) == 14


@pytest.mark.parametrize("factor", [2, 8, 64])
def test_no_temperature_is_tried_that_turns_scores_round(factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the loss goes on falling towards softer attention."""
    tried = []
    monkeypatch.setattr(fitting, "validation_windows", lambda *arguments: ())
    monkeypatch.setattr(
        fitting,
        "validation_loss",
        lambda model, split, windows, plan, *_, **__: tried.append(plan) or plan.logit_scale,
    )
    sizes = ModelConfig(vocab_size=9, width=16, layers=1, heads=1, kv_heads=1, head_dim=16, ff_width=16)
    model = Model(sizes, "none", {}, 8)

    def plan_of(recipe):
        return recipe.plan(model.encoding, 8, 8 * factor)

    found = fitting.fitted(parse("temperature"), plan_of, model, None, 8, 8 * factor, "fp32")
    assert len(tried) >= 10
    assert all(plan.logit_scale > 0 for plan in tried)
    assert found.plan(model.encoding, 8, 8 * factor).logit_scale < 0.7
