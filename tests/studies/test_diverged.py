"""Trainings whose loss is no longer finite: done, never chosen, never tried again."""

import math
import shutil
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.studies import worker
from extrapolate.training import loop
from extrapolate.training.loop import NotFinite, Training

AXES = '[axes]\nencoding = ["rope", "alibi"]\nlr = [3e-3, 1.0]\n'


@pytest.fixture
def study(small, monkeypatch: pytest.MonkeyPatch, elsewhere: None) -> Path:
    """Two models of two rates; every training with the higher one diverges, and with ALiBi with the lower one too."""
    step = Training._step

    def diverging(self: Training) -> dict[str, float]:
        training = self.run.trained
        if self.step == 1 and (training.training.lr == 1.0 or training.encoding.name == "alibi"):
            monkeypatch.setattr(self.gradient_step, "gradients", lambda *_: math.nan)
        return step(self)

    monkeypatch.setattr(loop.Training, "_step", diverging)
    return small(AXES)


def test_a_rate_that_diverged_is_not_taken_and_not_tried_again(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "at step 2; a lower `lr` is the first thing to try"
    for _ in range(2):
        done = xt.sweep(study, "out", engine="ray")
        assert {run.name for run in done.runs} == {"rope-lr0.003-s0"}
        assert done.diverged.keys() == {"rope-lr1.0-s0", "alibi-lr0.003-s0", "alibi-lr1.0-s0"}
        assert done.failed.keys() == {"alibi-lr0.003-s0", "alibi-lr1.0-s0"}
        assert all(said.startswith("it diverged: the loss is nan") for said in done.failed.values())
        assert all(said.endswith(reason) for said in done.diverged.values())
        assert done.learning_rates[["Model", "Learning rate", "Validation loss", "Taken"]].values.tolist()[1:] == [
            ["rope", 1.0, math.inf, "diverged"],
            ["alibi", 3e-3, math.inf, "diverged"],
            ["alibi", 1.0, math.inf, "diverged"],
        ]
        assert done.learning_rates["Taken"][0] == "yes, the lowest tried"
        status = xt.status("out").set_index("cell")
        assert status["status"].tolist() == ["done", "diverged", "diverged", "diverged"]
        assert status["reason"]["rope-lr1.0-s0"].endswith(reason)
        monkeypatch.setattr(worker, "perform", None)  # nothing is done any more


def test_with_other_settings_it_is_tried_again(study: Path) -> None:
    study.write_text(study.read_text().replace('["rope", "alibi"]', '["rope"]').replace("[3e-3, 1.0]", "[1.0]"))
    assert "rope-lr1.0-s0" in xt.sweep(study, "out", engine="ray").failed
    study.write_text(study.read_text().replace("layers = 1", "layers = 2"))
    shutil.rmtree("out/runs/rope-lr1.0-s0")  # which holds another training
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop.Training, "_step", lambda *_: (_ for _ in ()).throw(NotFinite("again")))
        done = xt.sweep(study, "out", engine="ray")
    assert done.diverged == {"rope-lr1.0-s0": "again"}
