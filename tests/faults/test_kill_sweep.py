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
# How columns begin that are measured.
MEASURED = ("evaluated_at", "tokens_per_s", "cpu_taken_share", "training_taken", "peak_mib", "Evaluation ")


def sweep(study: Path, out: Path) -> "subprocess.Popen[bytes]":
    command = [*PROGRAM, "sweep", str(study), "--out", str(out), "--jobs", "2"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def ended(process: "subprocess.Popen[bytes]") -> str:
    _, errors = process.communicate(timeout=900)
    return errors.decode()


def tables(out: Path) -> dict[str, pd.DataFrame]:
    found = {path.name: pd.read_parquet(path) for path in (out / "report").glob("*.parquet")}
    return {name: table.loc[:, [not one.startswith(MEASURED) for one in table]] for name, table in found.items()}


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
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[0]) if kill % 2 and children else process.pid, signal.SIGKILL)
        ended(process)
    assert "Error" not in ended(sweep(study, tmp_path / "killed"))
    one, other = tables(tmp_path / "undisturbed"), tables(tmp_path / "killed")
    assert one.keys() == other.keys()
    assert len(one) >= 4
    for name, table in one.items():
        pd.testing.assert_frame_equal(table, other[name], check_exact=True)
