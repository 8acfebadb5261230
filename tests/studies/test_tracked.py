"""A study with a tracker: each cell is a run of it, and a tracker that fails is named once, and fails no cell."""

import importlib.util
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.cli import main
from extrapolate.interop import trackers
from extrapolate.interop.trackers import Opened
from extrapolate.runs.run import Run

AXES = '[axes]\nencoding = ["rope", "alibi"]\n'


class Said:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)

    display = staticmethod(xt.Terminal().display)


@pytest.mark.usefixtures("elsewhere")
def test_every_step_is_told_and_a_tracker_that_fails_is_named_once_and_fails_no_cell(
    small, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str | None, str, int]] = []

    def opened(run: Run, group: str | None, step: int) -> Opened:
        def log(values: dict[str, float], step: int) -> None:
            told.append((group, run.name, step))
            if step == 2:
                raise ConnectionError("no route")

        return Opened(log, lambda: None, "a list")

    monkeypatch.setitem(trackers._OPEN, "pytest", opened)
    said = Said()
    done = xt.sweep(small(AXES), engine="ray", tracker="pytest", progress=said)
    assert len(done.runs) == 2
    assert not done.failed
    assert list(dict.fromkeys(told)) == [("study", name, step) for name in ("rope-s0", "alibi-s0") for step in (1, 2)]
    wanted = "rope-s0, alibi-s0: pytest failed (no route): the training goes on without it"
    assert [message for message in said.messages if "pytest" in message] == [wanted]


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_the_processes_of_this_machine_track_too(small) -> None:
    file = small('[axes]\nencoding = ["rope"]\n')
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(file), "--out", "out", "--jobs", "1", "--tracker", "tensorboard"])
    assert not ended.value.code
    assert list(Path("out/runs/rope-s0").glob("events.out.tfevents.*"))


@pytest.mark.usefixtures("elsewhere")
def test_a_cell_that_is_not_in_the_study_any_more_is_named(small) -> None:
    xt.sweep(small(AXES), "out", engine="ray")
    said = Said()
    xt.sweep(small('[axes]\nencoding = ["alibi"]\n'), "out", engine="ray", progress=said)
    assert "left out of the report, for they are no cells of the study any more: rope-s0" in said.messages
