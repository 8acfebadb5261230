"""The findings and advice for several kinds of machines."""

import json
from collections.abc import Callable
from pathlib import Path

import printed
import pytest
import torch

from extrapolate.machine import examination
from extrapolate.machine.examination import DEVELOPERS, Finding, extras


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine with a number of cores, a quota of their time, and a number of threads."""

    def made(cores: int, quota: float | None = None, threads: int | None = None) -> None:
        monkeypatch.setattr(examination, "cores", lambda: cores)
        monkeypatch.setattr(examination, "cpu_quota", lambda: quota)
        monkeypatch.setattr(torch, "get_num_threads", lambda: cores if threads is None else threads)

    return made


def test_a_quota_is_the_number_of_cores_that_counts(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    machine(cores=16, quota=2.0)
    cores, threads = examination._cores(), examination._threads()
    assert (cores.status, cores.value, cores.unit) == ("slow", 2.0, "cores")
    assert threads.status == "slow"
    assert "OMP_NUM_THREADS=2" in str(threads.advice)
    machine(cores=16, quota=16.0)
    assert {examination._cores().status, examination._threads().status} == {"ok"}


def test_fewer_threads_than_cores_are_named_if_a_variable_sets_them(machine, monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    machine(cores=2, threads=1)
    found = examination._threads()
    assert (found.status, found.found) == ("slow", "1 thread, because OMP_NUM_THREADS=1")
    assert str(found.advice).startswith("unset OMP_NUM_THREADS")


def test_a_compiler_that_is_missing_and_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object) -> object:
        raise RuntimeError("CppCompileError\n  fatal error: Python.h: No such file or directory\nmore")

    monkeypatch.setattr(examination, "can_compile", lambda device: True)
    monkeypatch.setattr(torch, "compile", refuse)
    found = examination._compile()
    assert found.status == "missing"
    assert found.found == "torch.compile fails: fatal error: Python.h: No such file or directory"
    monkeypatch.setattr(examination, "can_compile", lambda device: False)
    assert examination._compile().found == "no C++ compiler: g++ or clang++"


def test_little_memory_and_disk_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "memory_limit", lambda: 2 * 2**30)
    assert (examination._memory().status, examination._memory().value) == ("low", 2.0)
    monkeypatch.setattr(examination.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 2**30}))
    assert (examination._disk(tmp_path).status, examination._disk(tmp_path).value) == ("low", 1.0)


def test_extras_are_those_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    required = ["torch>=2.8", 'pytest>=8; extra == "test"', 'nowhere[hf]>=1; extra == "lm-eval"', "typer; extra == 'x'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: required)
    found = extras()
    assert found.keys() == {"lm-eval", "x"}
    assert found["lm-eval"] == {"nowhere": None}
    assert found["x"]["typer"] is not None
    assert not found.keys() & DEVELOPERS


def test_the_command_ends_well_whatever_is_missing_and_json_has_the_keys_of_its_page(cli, monkeypatch) -> None:
    parts = [
        Finding("gpu", "missing", "no CUDA device"),
        Finding("compile", "slow", "slow", 1.0, "s", "give `compile=False`"),
    ]
    monkeypatch.setattr("extrapolate.api.check.examine", lambda folder: iter(parts))
    shown = cli("doctor").succeeded().out
    assert "give --no-compile" in shown
    rows = [json.loads(line) for line in cli("doctor", "--json").succeeded().out.splitlines()]
    assert all(set(row) == {column.name for column in printed.DOCTOR.columns} for row in rows)
    assert [row["value"] for row in rows] == [None, 1.0]
    assert all(row[column.name] is not None for row in rows for column in printed.DOCTOR.columns if column.required)
