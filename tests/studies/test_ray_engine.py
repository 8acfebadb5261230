"""A study on a real Ray cluster of two workers, one of which is killed in the middle."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import ray

import extrapolate as xt
from extrapolate.errors import UserError
from extrapolate.studies import ray_engine
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


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1", "127.0.0.1:99999", "nonsense", "ray://127.0.0.1:1"])
def test_no_cluster_at_an_address(store: Path, tmp_path: Path, address: str) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(store=store))
    with pytest.raises(UserError, match=f"there is no Ray cluster at `address={address}`"):
        xt.sweep(study, tmp_path / "out", engine="ray", address=address)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on this machine, started once: a sweep without an address would start its own each time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        with ray_engine._cluster(ray, None):
            patched.setattr(ray_engine, "_cluster", lambda ray, address: contextlib.nullcontext())
            yield


@pytest.mark.usefixtures("cluster")
def test_a_cluster_does_a_study_though_a_worker_is_killed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
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


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_sees_no_folder_of_ours_returns_the_run(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(store=store).replace('["rope", "alibi"]', '["rope"]').replace("65536", "5120"))
    done = xt.sweep(study, "out", engine="ray", gather="return")
    assert not done.failed
    assert {one.cell: one.status for one in status_of(Path("out"))} == {"rope-s0": "done"}
    assert xt.load("out/runs/rope-s0").trained.data.path == str(store.resolve())
    assert not list(Path("out/runs").rglob("*.partial"))
