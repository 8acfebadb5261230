"""How long a study takes: the parts that are measured, put together."""

import time
from pathlib import Path

import pytest

from extrapolate.studies import estimate as module
from extrapolate.studies.estimate import Cost, estimate

AXES = """
[axes]
encoding = ["rope"]
lr = [1e-3, 3e-3, 1e-2]
[[fine_tune]]
name = "long"
tokens = 512
"""


def test_only_one_learning_rate_is_evaluated_and_continued(small, resolved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure", lambda cell, jobs: Cost(0.0, step_s=1.0, input_s=0.01, peak_mib=1.0))
    _, cells = resolved(small(AXES))
    found = estimate(cells, 1, lambda done, total: None)
    evaluation_s = 0.01 * cells[0].evaluation_inputs
    assert list(found.training_s.values()) == [2.0, 2.0, 2.0, 1.0, 0.0, 0.0]
    assert list(found.evaluation_s.values()) == [evaluation_s, 0.0, 0.0, evaluation_s, 0.0, 0.0]
    assert found.seconds == pytest.approx(7 + 2 * evaluation_s)


def test_an_evaluation_at_long_lengths_is_measured_on_a_span_of_the_longest(
    small, resolved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (cell,) = resolved(small('[axes]\nencoding = ["rope"]\n', factors="[1, 4]"))
    monkeypatch.setattr(module, "EVALUATED_TARGETS", 32)  # fewer than a span of 4 x 16 tokens
    module._train(cell, tmp_path / "run", time.time())
    assert module._evaluate(cell, tmp_path / "run") > 0.0
