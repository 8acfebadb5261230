"""Limits of memory and CPU time, and threads that wait briefly."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from extrapolate.machine.limits import SPINS, cores, cpu_quota, cpu_share, memory_limit, set_omp_spin


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 1 TB, and a process without limits of its own."""
    monkeypatch.setattr("os.sysconf", lambda name: 2**20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def machine(root: Path, line: str, files: dict[str, str]) -> Path:
    """The root of a machine: the line on the process's control group in /proc, and files below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"9:name=systemd:/elsewhere\n{line}\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def test_a_limit_of_the_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_limit(root=tmp_path) == 2**40
    assert cpu_quota(tmp_path) is None
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (2**30, 2**31))
    assert memory_limit(root=tmp_path) == 2**30


JOB, TASK = "a/job_42", "a/job_42/step_0/task_0"  # as Slurm nests them: the job has the limit, the task runs
NONE = str(2**63 - 4096)  # in cgroups v1


@pytest.mark.parametrize(
    ("line", "files", "memory", "quota"),
    [
        (f"0::/{TASK}", {f"{JOB}/memory.max": "1073741824", f"{JOB}/cpu.max": "150000 100000",
                         f"{TASK}/memory.max": "max", f"{TASK}/cpu.max": "max 100000"}, 2**30, 1.5),
        (f"4:cpuacct,cpu,memory:/{TASK}",
         {f"memory/{JOB}/memory.limit_in_bytes": "1073741824", f"memory/{TASK}/memory.limit_in_bytes": NONE,
          f"cpu/{JOB}/cpu.cfs_quota_us": "150000", f"cpu/{JOB}/cpu.cfs_period_us": "100000",
          f"cpu/{TASK}/cpu.cfs_quota_us": "-1", f"cpu/{TASK}/cpu.cfs_period_us": "100000"}, 2**30, 1.5),
        ("0::/b/c", {"b/memory.max": "2000", "b/c/memory.max": "3000", "memory.max": "4000",
                     "b/cpu.max": "400000 50000", "b/c/cpu.max": "300000 100000"}, 2000, 3.0),
        ("0::/not/in/this/container", {"memory.max": "1073741824", "cpu.max": "max 100000"}, 2**30, None),
        ("0::/", {}, 2**40, None),
    ],
)  # fmt: skip
def test_the_least_limit_of_all_groups_up_to_the_root_counts(
    tmp_path: Path, line: str, files: dict[str, str], memory: int, quota: float | None
) -> None:
    root = machine(tmp_path, line, files)
    assert memory_limit(root=root) == memory
    assert cpu_quota(root) == quota


@pytest.mark.parametrize(
    ("quota", "share", "workers"),
    [("150000 100000", 1.5, 1), ("700000 100000", 7.0, 7), ("9000000 100000", 24, 24), ("max 100000", 24, 24)],
)
def test_workers_are_as_many_as_the_quota_of_a_group_above_keeps_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, share: float, workers: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(24)))
    root = machine(tmp_path, f"0::/{TASK}", {f"{JOB}/cpu.max": quota, f"{TASK}/cpu.max": "max 100000"})
    assert (cpu_share(root), cores(root)) == (share, workers)


@pytest.mark.parametrize(("own", "found"), [({}, 1), ({"OMP_NUM_THREADS": "24"}, 24)])
def test_torch_has_no_more_threads_than_the_quota_keeps_busy(tmp_path: Path, own: dict[str, str], found: int) -> None:
    machine(tmp_path, f"0::/{TASK}", {f"{JOB}/cpu.max": "150000 100000"})
    code = f"""
import os
os.sched_getaffinity = lambda process: set(range(24))
import torch
from pathlib import Path
from extrapolate.machine.limits import stay_within_quota
torch.set_num_threads(24)
stay_within_quota(Path({str(tmp_path)!r}))
print(torch.get_num_threads())
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | own
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == found


def test_groups_beside_those_of_the_process_do_not_count(tmp_path: Path) -> None:
    files = {f"{JOB}/other/memory.max": "1000", "a/job_43/cpu.max": "1000 100000", f"{TASK}/below/memory.max": "1000"}
    root = machine(tmp_path, f"0::/{TASK}", files)
    assert (memory_limit(root=root), cpu_quota(root)) == (2**40, None)


SET = {"GOMP_SPINCOUNT": SPINS} if sys.platform == "linux" else {}


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, SET), *((own, own) for own in ({"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "passive"}))],
)
def test_threads_wait_briefly_unless_the_user_says_how(before: dict[str, str], after: dict[str, str]) -> None:
    environment = dict(before)
    set_omp_spin(environment)
    assert environment == after


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another library")
def test_the_command_line_makes_it_before_torch_is_loaded() -> None:
    code = """
import os, sys
from extrapolate import cli
class Seen:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Seen())
cli.main(["train", "--pe", "rope", "--seq-len", "8", "--data", "/nowhere"])
"""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, env=environment).stdout.strip() == SPINS
