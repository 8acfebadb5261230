"""How long a study takes: the tokens of its cells, at speeds that are measured."""

import pytest

from extrapolate.benchmark import TokenCost
from extrapolate.runs.resolve import token_operations
from extrapolate.studies import estimate as module
from extrapolate.studies.estimate import CELL_S, COMPILE_S, COMPILED, START_S, estimate, training_s
from extrapolate.training.gradient_step import VALIDATION_TARGETS
from extrapolate.training.loop import VALIDATIONS

AXES = """
[axes]
encoding = ["rope"]
lr = [1e-3, 3e-3, 1e-2]
[[fine_tune]]
name = "long"
tokens = 512
"""
COST = TokenCost(training_s=0.01, evaluation_s={16: 0.001, 64: 0.004})
VALIDATING = VALIDATIONS * VALIDATION_TARGETS * 0.001


def test_only_one_learning_rate_is_evaluated_and_continued(small, resolved, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(cells, jobs, tell):
        measured.extend(cell.name for cell in cells)
        return [COST] * len(cells)

    monkeypatch.setattr(module, "measure", measure)
    _, cells = resolved(small(AXES, factors="[1, 4]"))
    found = estimate(cells, 1, lambda done, total: None)
    assert len(measured) == 1, "learning rates and budgets are as fast as each other"
    trained, continued = CELL_S + VALIDATING + 10.24, CELL_S + VALIDATING + 5.12
    assert list(found.training_s.values()) == pytest.approx([trained] * 3 + [continued, 0.0, 0.0])
    # Eight windows of 64 tokens, in which the first of every four windows of 16 is computed too; and of the control's,
    # which begin every 8 tokens, three in 64 tokens that begin elsewhere, with 8 targets each.
    sizes = cells[0].config.model
    half = token_operations(sizes, 16, 8) / token_operations(sizes, 16)
    evaluated = 8 * (64 * 0.004 + 3 * 16 * 0.001 + 3 * 16 * half * 0.001)
    assert list(found.evaluation_s.values()) == pytest.approx([evaluated, 0.0, 0.0, evaluated, 0.0, 0.0])
    assert found.seconds == pytest.approx(START_S + 3 * trained + continued + 2 * evaluated)


def test_compiling_takes_a_while_and_makes_steps_faster(small, resolved) -> None:
    _, (eager,) = resolved(small('[axes]\nencoding = ["rope"]\n'))
    _, (compiled,) = resolved(small('[axes]\nencoding = ["rope"]\n', compile="true"))
    saved = (1 - COMPILED) * 10.24
    assert training_s(compiled, COST) == pytest.approx(training_s(eager, COST) + COMPILE_S - saved)


def test_the_cost_of_a_token_is_linear_in_the_length() -> None:
    assert [COST.evaluation_at(length) for length in (8, 16, 40, 64)] == pytest.approx([0.001, 0.001, 0.0025, 0.004])


def test_every_job_measures_at_once(small, resolved) -> None:
    """Two real processes, and one model for both."""
    if module.cores() < 2:
        pytest.skip("this machine has one core")
    _, cells = resolved(small('[axes]\nencoding = ["learned"]\nseed = [0, 1]\n', factors="[1, 4]"))
    told: list[tuple[int, int]] = []
    costs = module.measure(cells, 2, lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2)]
    for cost in costs:
        assert cost.training_s > cost.evaluation_s[16] > 0.0
        assert set(cost.evaluation_s) == {16}, "it does not reach 64 tokens"
