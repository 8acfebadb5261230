"""The findings and advice for several kinds of machines."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from extrapolate.machine import examination
from extrapolate.machine.examination import Finding, examine, extras

GIB = 2**30


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Finding]]:
    """What is found on a machine with these cores, a quota of their time, threads, and GiB of memory and disk."""

    def examined(cores: int = 2, quota: float | None = None, threads: int = 2, gib: float = 64) -> dict[str, Finding]:
        monkeypatch.setattr(examination, "allowed_cores", lambda: cores)
        monkeypatch.setattr(examination, "cpu_share", lambda: min(cores, quota or cores))
        monkeypatch.setattr(examination, "memory_limit", lambda: int(gib * GIB))
        monkeypatch.setattr(examination.shutil, "disk_usage", lambda _: type("Usage", (), {"free": gib * GIB}))
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        return {one.part: one for one in examine(tmp_path)}

    monkeypatch.setattr(torch, "compile", lambda function: function)
    return examined


def test_a_quota_is_the_number_of_cores_that_counts(found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    limited = found(cores=16, quota=2.5, threads=16)
    assert (limited["cores"].status, limited["cores"].found.split()[0]) == ("slow", "2.5")
    assert limited["threads"].status == "slow"
    assert "OMP_NUM_THREADS=2" in limited["threads"].advice
    whole = found(cores=16, quota=16.0, threads=16)
    assert {whole["cores"].status, whole["threads"].status} == {"ok"}


def test_fewer_threads_than_cores_are_named_if_a_variable_sets_them(found, monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = found(cores=2, threads=1)["threads"]
    assert threads.status == "slow"
    assert threads.advice.startswith("set the variable OMP_NUM_THREADS=2")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert found(cores=2, threads=1)["threads"].status == "ok"


def test_a_compiler_that_is_missing_and_one_that_fails(found, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object) -> object:
        raise RuntimeError("CppCompileError\n  fatal error: Python.h: No such file or directory\nmore")

    monkeypatch.setattr(examination, "can_compile", lambda device: True)
    assert found()["compile"].status == "ok"
    monkeypatch.setattr(torch, "compile", refuse)
    failed = found()["compile"]
    assert failed.status == "missing"
    assert failed.found == "torch.compile fails: fatal error: Python.h: No such file or directory"
    monkeypatch.setattr(examination, "can_compile", lambda device: False)
    assert found()["compile"].found == "no C++ compiler: g++ or clang++"


def test_little_memory_and_disk_are_named(found) -> None:
    little, enough = found(gib=2), found(gib=64)
    for part in ("memory", "disk"):
        assert little[part].status == "low"
        assert little[part].found.startswith("2.0 GiB")
        assert little[part].advice
        assert (enough[part].status, enough[part].advice) == ("ok", "")


def test_extras_are_those_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    required = ["torch>=2.8", 'nowhere[hf]>=1; extra == "lm-eval"', "typer; extra == 'x'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: required)
    assert extras() == {"lm-eval": ["nowhere"], "x": []}


def test_the_command_ends_well_whatever_is_missing(cli, monkeypatch) -> None:
    parts = [Finding("gpu", "missing", "no CUDA device"), Finding("compile", "slow", "slow", "give `compile=False`")]
    monkeypatch.setattr("extrapolate.api.check.examine", lambda folder: iter(parts))
    shown = cli("doctor").succeeded().out
    assert "no CUDA device" in shown
    assert "give --no-compile" in shown
