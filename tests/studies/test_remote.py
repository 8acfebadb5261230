"""Cells of machines that share no folder: what is sent, what comes back, and runs written whole or not at all."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.errors import UserError
from extrapolate.runs import trust
from extrapolate.runs.run import file_sha256
from extrapolate.studies import remote

STUDY = """
[base]
data = "{store}"
seq_len = 16
tokens = 2048
batch_tokens = 512
layers = 1
precision = "fp32"
compile = false
[axes]
encoding = ["mine.py:Mine"]
lr = [1e-3, 3e-3]
[[fine_tune]]
name = "long"
tokens = 1024
[evaluate]
factors = [1]
protocols = ["windows"]
max_targets = 512
"""
MINE = """
import torch
from extrapolate.encodings.base import Encoding
class Mine(Encoding):
    display = "Mine"
    def bias(self, pos_T, pos_S):
        return -0.01 * (pos_T[:, None] - pos_S[None, :])[None]
"""


@pytest.fixture
def study(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: None) -> Path:
    monkeypatch.chdir(tmp_path)
    mine = Path("mine.py")
    mine.write_text(MINE)
    trust.allow(file_sha256(mine), mine)
    file = Path("study.toml")
    file.write_text(STUDY.format(store=store))
    return file


def test_trainings_evaluations_and_what_continues_them_come_back(study: Path, store: Path) -> None:
    done = xt.sweep(study, "out", engine="ray", gather="return")
    assert not done.failed
    best = f"mine-Mine-lr{done.learning_rates['Learning rate'][done.learning_rates['Taken'] != ''].item():g}-s0"
    assert {run.name for run in done.runs} == {best, f"{best}+long"}
    assert set(pd.read_parquet("out/report/evals.parquet")["run"]) == {best, f"{best}+long"}
    assert xt.load(f"out/runs/{best}").trained.data.path == str(store.resolve())
    assert not list(Path("out").rglob("*.partial"))
    before = {path: path.stat().st_mtime_ns for path in Path("out/runs").rglob("*") if path.is_file()}
    xt.sweep(study, "out", engine="ray", gather="return")
    assert {path: path.stat().st_mtime_ns for path in Path("out/runs").rglob("*") if path.is_file()} == before


def test_a_run_is_written_whole_or_not_at_all(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = remote._write

    def write(content: Any, folder: Path) -> None:
        if folder.name.endswith(".partial"):
            whole(dict(list(content.items())[:2]), folder)
            raise OSError(28, "No space left on device", "a")
        whole(content, folder)

    monkeypatch.setattr(remote, "_write", write)
    study.write_text(re.sub(r"lr =.*\n|\[\[fine_tune\]\]\n.*\n.*\n", "", study.read_text()))
    done = xt.sweep(study, "out", engine="ray", gather="return")
    assert done.failed == {"mine-Mine-s0": "No space left on device (a)"}
    assert not list(Path("out/runs").iterdir())
    monkeypatch.setattr(remote, "_write", whole)
    assert not xt.sweep(study, "out", engine="ray", gather="return").failed


def test_a_file_that_could_not_have_the_same_name_there_is_refused(study: Path, tmp_path: Path) -> None:
    study.write_text(study.read_text().replace("mine.py:", f"{tmp_path}/mine.py:"))
    with pytest.raises(UserError, match="name it from the folder that you are in"):
        xt.sweep(study, "out", engine="ray", gather="return")


def test_returning_is_for_ray(study: Path) -> None:
    with pytest.raises(UserError, match="with the engine ray there are folder, return"):
        xt.sweep(study, "out", gather="return")


def test_a_run_that_cannot_be_kept_does_not_stop_the_others(study: Path) -> None:
    """A file is where its folder should be."""
    few = re.sub(r"lr =.*\n|\[\[fine_tune\]\]\n.*\n.*\n", "", study.read_text())
    study.write_text(few.replace('"mine.py:Mine"', '"mine.py:Mine", "rope"'))
    Path("out/runs").mkdir(parents=True)
    Path("out/runs/rope-s0").write_text("in the way")
    done = xt.sweep(study, "out", engine="ray", gather="return")
    assert list(done.failed) == ["rope-s0"]
    assert "is a file, not a folder" in done.failed["rope-s0"]
    assert [run.name for run in done.runs] == ["mine-Mine-s0"]
