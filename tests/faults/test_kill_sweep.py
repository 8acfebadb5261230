"""kill -9 of a study and of its processes, at random moments: it ends with the tables of one that nobody disturbed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

KILLS = int(os.environ.get("EXTRAPOLATE_KILLS", "2"))
PROGRAM = [sys.executable, "-c", "from extrapolate.cli import main; main()"]
STUDY = """
[base]
data = "{store}"
seq_len = 16
tokens = 20480
batch_tokens = 512
layers = 1
precision = "fp32"
compile = false

[axes]
encoding = ["rope", "alibi", "expe"]

[evaluate]
factors = [1, 4]
extend = ["pi"]
max_targets = 2048
"""
MEASURED = (
    "evaluated_at",
    "tokens_per_s",
    "cpu_taken_share",
    "training_taken",
    "peak_mib",
    "Evaluation ",
)  # how columns begin


def sweep(study: Path, out: Path) -> "subprocess.Popen[bytes]":
    command = [*PROGRAM, "sweep", str(study), "--out", str(out), "--jobs", "2"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def children_of(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def ended(process: "subprocess.Popen[bytes]") -> str:
    _, errors = process.communicate(timeout=900)
    return errors.decode()


def tables(out: Path) -> dict[str, pd.DataFrame]:
    found = {}
    for path in sorted((out / "report").glob("*.parquet")):
        table = pd.read_parquet(path)
        found[path.name] = table.drop(columns=[name for name in table if name.startswith(MEASURED)])
    return found


def test_a_study_that_is_killed_again_and_again(store: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(store=store))
    undisturbed = sweep(study, tmp_path / "undisturbed")
    began = time.monotonic()
    assert "cells evaluated" in ended(undisturbed)
    whole = time.monotonic() - began
    rng = random.Random(0)
    for kill in range(KILLS):
        process = sweep(study, tmp_path / "killed")
        time.sleep(rng.uniform(0.3, 0.7) * whole)
        if process.poll() is None:
            victims: list[int] = children_of(process.pid) if kill % 2 else []
            os.kill(victims[0] if victims else process.pid, signal.SIGKILL)
        ended(process)
    assert "Error" not in ended(sweep(study, tmp_path / "killed"))
    one, other = tables(tmp_path / "undisturbed"), tables(tmp_path / "killed")
    assert one.keys() == other.keys()
    assert len(one) >= 4
    for name, table in one.items():
        pd.testing.assert_frame_equal(table, other[name], check_exact=True)
