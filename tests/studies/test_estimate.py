"""How long a study takes: the parts that are measured, put together."""

from pathlib import Path

import pytest

from extrapolate.data.store import Store
from extrapolate.studies import estimate as module
from extrapolate.studies.cells import cells_of
from extrapolate.studies.estimate import estimate
from extrapolate.studies.measure import Cost
from extrapolate.studies.resolved import resolve_cells
from extrapolate.studies.study import read_study

STUDY = """
[base]
data = "{store}"
seq_len = 16
tokens = 5120
batch_tokens = 512
layers = 1
[axes]
encoding = ["rope"]
lr = [1e-3, 3e-3, 1e-2]
[[fine_tune]]
name = "long"
tokens = 1024
[evaluate]
factors = [1, 2]
max_targets = 512
"""


def test_only_one_learning_rate_is_evaluated_and_continued(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measure", lambda cell, jobs: Cost(0.0, 0.0, step_s=1.0, input_s=0.01, peak_mib=1.0))
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format(store=store))
    study = read_study(file)
    cells = resolve_cells(study, cells_of(study), {str(store): Store.open(store)}, tmp_path / "runs")
    found = estimate(cells, 1, lambda done, total: None)
    evaluation_s = 0.01 * cells[0].evaluation_inputs
    assert list(found.training_s.values()) == [10.0, 10.0, 10.0, 2.0, 0.0, 0.0]
    assert list(found.evaluation_s.values()) == [evaluation_s, 0.0, 0.0, evaluation_s, 0.0, 0.0]
    assert found.seconds == pytest.approx(32 + 2 * evaluation_s)
