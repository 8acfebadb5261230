"""kill -9 of a worker of a real Ray cluster in the middle of its cell: the study is done whole."""

import os
import signal
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.studies.status import status_of

STUDY = """
[base]
data = "{store}"
seq_len = 16
tokens = 65536
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


def holder_of(lock: Path) -> int | None:
    """The process that holds a lock file."""
    if not lock.exists():
        return None
    inode = f":{lock.stat().st_ino} "
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines() if inode in line]
    return int(lines[0][4]) if lines else None


def test_a_cluster_does_a_study_though_a_worker_is_killed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    study, log = tmp_path / "study.toml", tmp_path / "out/runs/rope-s0/metrics.jsonl"
    study.write_text(STUDY.format(store=store))
    killed: list[int] = []
    over = threading.Event()

    def kill_one() -> None:
        while not killed and not over.is_set():  # on a busy machine a worker takes a minute to start
            worker = holder_of(log.parent / ".lock")
            if worker is not None and log.exists() and log.read_bytes().count(b"\n") > 5:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)
            time.sleep(0.002)

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        done = xt.sweep(study, "out", engine="ray")
    finally:
        over.set()
        killer.join()
    assert killed, "the cell was done before its worker could be killed"
    assert not done.failed
    assert {one.cell: one.status for one in status_of(Path("out"))} == {"rope-s0": "done", "alibi-s0": "done"}
    steps = pd.read_parquet(log.with_suffix(".parquet"))["step"].drop_duplicates()
    assert steps.tolist() == list(range(1, 129))
    assert set(pd.read_parquet("out/report/evals.parquet")["run"]) == {"rope-s0", "alibi-s0"}
