"""A study with a tracker: each cell is a run of it, and a tracker that fails is named once, and fails no cell."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import extrapolate as xt
from extrapolate.cli import main
from extrapolate.interop import trackers
from extrapolate.runs.run import Run

STUDY = """
[base]
data = "{store}"
seq_len = 16
tokens = 1024
batch_tokens = 512
layers = 1
precision = "fp32"
compile = false
[axes]
encoding = ["rope", "alibi"]
[evaluate]
factors = [1]
protocols = ["windows"]
max_targets = 512
"""


@pytest.fixture
def study(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "small.toml"
    file.write_text(STUDY.format(store=store))
    return file


class Said:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)

    display = staticmethod(xt.Terminal().display)


@pytest.mark.usefixtures("elsewhere")
def test_a_tracker_that_fails_is_named_once_and_no_cell_fails(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def refuse(run: Run, name: str, group: str | None, fresh: bool) -> Any:
        asked.append((run.name, group))
        raise ConnectionError("no route")

    monkeypatch.setitem(trackers._OPEN, "pytest", refuse)
    said = Said()
    done = xt.sweep(study, "out", engine="ray", tracker="pytest", progress=said)
    assert len(done.runs) == 2
    assert not done.failed
    assert asked == [("rope-s0", "out"), ("alibi-s0", "out")]
    wanted = "rope-s0, alibi-s0: pytest failed (no route): the training goes on without it"
    assert [message for message in said.messages if "pytest" in message] == [wanted]


@pytest.mark.usefixtures("elsewhere")
def test_every_step_of_every_cell_is_told(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str | None, str, int]] = []

    def opened(run: Run, name: str, group: str | None, fresh: bool) -> Any:
        def log(step: int, values: dict[str, float]) -> None:
            told.append((group, run.name, step))

        return SimpleNamespace(place="a list", log=log, close=lambda failed: None)

    monkeypatch.setitem(trackers._OPEN, "pytest", opened)
    xt.sweep(study, engine="ray", tracker="pytest")
    assert set(told) == {("small", name, step) for name in ("rope-s0", "alibi-s0") for step in (1, 2)}


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_the_processes_of_this_machine_track_too(study: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(study), "--out", "out", "--jobs", "1", "--tracker", "tensorboard"])
    assert not ended.value.code
    assert all(list((Path("out/runs") / name).glob("events.out.tfevents.*")) for name in ("rope-s0", "alibi-s0"))
