"""A study with a tracker: each cell is a run of it, and a tracker that fails is named once, and fails no cell."""

from types import SimpleNamespace
from typing import Any

import pytest

import extrapolate as xt
from extrapolate.interop import trackers
from extrapolate.interop.trackers import Opened
from extrapolate.runs.run import Run

AXES = '[axes]\nencoding = ["rope", "alibi"]\n'


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
    messages: list[str] = []
    said: Any = SimpleNamespace(say=messages.append, display=xt.Terminal().display)
    done = xt.sweep(small(AXES), engine="ray", tracker="pytest", progress=said)
    assert len(done.runs) == 2
    assert not done.failed
    assert list(dict.fromkeys(told)) == [("study", name, step) for name in ("rope-s0", "alibi-s0") for step in (1, 2)]
    wanted = "rope-s0, alibi-s0: pytest failed (no route): the training goes on without it"
    assert [message for message in messages if "pytest" in message] == [wanted]
    xt.sweep(small('[axes]\nencoding = ["alibi"]\n'), engine="ray", progress=said)
    assert "left out of the report, for they are no cells of the study any more: rope-s0" in messages
