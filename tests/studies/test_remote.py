"""Cells of machines that share no folder: what is sent, what comes back, and runs written whole or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.errors import UserError
from extrapolate.runs import trust
from extrapolate.runs.run import file_sha256
from extrapolate.studies import remote

AXES = '[axes]\nencoding = ["mine.py:Mine"{more}]\n'
RATES = 'lr = [1e-3, 3e-3]\n[[fine_tune]]\nname = "long"\ntokens = 512\n'
MINE = """
import torch
from extrapolate.encodings.base import Encoding
class Mine(Encoding):
    display = "Mine"
    def bias(self, pos_T, pos_S):
        return -0.01 * (pos_T[:, None] - pos_S[None, :])[None]
"""


@pytest.fixture
def study(small, elsewhere: None) -> Callable[..., Path]:
    """Writes a study of the user's own encoding, and of more."""

    def write(more: str = "", encodings: str = "") -> Path:
        file = small(AXES.format(more=encodings) + more)
        Path("mine.py").write_text(MINE)
        trust.allow(file_sha256(Path("mine.py")), Path("mine.py"))
        return file

    return write


def test_trainings_evaluations_and_what_continues_them_come_back(study, store: Path) -> None:
    done = xt.sweep(study(RATES), "out", engine="ray", gather="return")
    assert not done.failed
    best = f"mine-Mine-lr{done.learning_rates['Learning rate'][done.learning_rates['Taken'] != ''].item():g}-s0"
    assert {run.name for run in done.runs} == {best, f"{best}+long"}
    assert set(pd.read_parquet("out/report/evals.parquet")["run"]) == {best, f"{best}+long"}
    assert xt.load(f"out/runs/{best}").trained.data.path == str(store.resolve())
    assert not list(Path("out").rglob("*.partial"))
    before = {path: path.stat().st_mtime_ns for path in Path("out/runs").rglob("*") if path.is_file()}
    xt.sweep("study.toml", "out", engine="ray", gather="return")
    assert {path: path.stat().st_mtime_ns for path in Path("out/runs").rglob("*") if path.is_file()} == before


def test_a_run_is_written_whole_or_not_at_all_and_does_not_stop_the_others(
    study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For one there is no room at first; where the other's folder should be is a file."""
    whole = remote._write

    def write(content: Any, folder: Path) -> None:
        if folder.name.endswith(".partial"):
            whole(dict(list(content.items())[:2]), folder)
            raise OSError(28, "No space left on device", "a")
        whole(content, folder)

    file = study(encodings=', "rope"')
    Path("out/runs").mkdir(parents=True)
    Path("out/runs/rope-s0").write_text("in the way")
    monkeypatch.setattr(remote, "_write", write)
    failed = xt.sweep(file, "out", engine="ray", gather="return").failed
    assert failed.keys() == {"mine-Mine-s0", "rope-s0"}
    assert failed["mine-Mine-s0"] == "No space left on device (a)"
    assert [path.name for path in Path("out/runs").iterdir()] == ["rope-s0"]
    monkeypatch.setattr(remote, "_write", whole)
    done = xt.sweep(file, "out", engine="ray", gather="return")
    assert list(done.failed) == ["rope-s0"]
    assert "is a file, not a folder" in done.failed["rope-s0"]
    assert [run.name for run in done.runs] == ["mine-Mine-s0"]


def test_a_file_that_could_not_have_the_same_name_there_is_refused(study, tmp_path: Path) -> None:
    file = study()
    file.write_text(file.read_text().replace("mine.py:", f"{tmp_path}/mine.py:"))
    with pytest.raises(UserError, match="name it from the folder that you are in"):
        xt.sweep(file, "out", engine="ray", gather="return")


def test_returning_is_for_ray(study) -> None:
    with pytest.raises(UserError, match="with the engine ray there are folder, return"):
        xt.sweep(study(), "out", gather="return")
