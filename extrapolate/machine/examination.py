"""What this machine offers for training and evaluation, what makes it slow, and what to do about it."""

import os
import re
import shutil
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch

from extrapolate.machine.devices import can_compile, device_of
from extrapolate.machine.limits import allowed_cores, cpu_share, memory_limit, stay_within_quota

GIB = 2**30
LITTLE_GIB = 4.0  # of memory or disk: an evaluation at 16 times a long training length needs more
DEVELOPERS = frozenset({"test", "mutants", "site"})  # extras for work on this project itself
_EXTRA = re.compile(r"""^([\w.-]+).*;.*\bextra == ["']([\w-]+)["']""")


class Finding(NamedTuple):
    """One part of the machine. status: `ok`, `slow`, `low` or `missing`. advice: what to do, or empty."""

    part: str
    status: str
    found: str
    advice: str = ""


def examine(folder: Path) -> Iterator[Finding]:
    """Examines every part in turn, which takes seconds. folder: where runs are written."""
    stay_within_quota()  # as training and evaluation do
    share, threads, cuda = cpu_share(), torch.get_num_threads(), torch.cuda.is_available()
    at_once, idle = max(1, int(share)), "OMP_NUM_THREADS" in os.environ  # torch alone may leave out hyper-threads
    memory, disk = memory_limit() / GIB, shutil.disk_usage(folder).free / GIB
    for part, status, wrong, found, advice in (
        ("torch", "", False, f"torch {torch.__version__}", ""),
        ("cores", "slow", share < allowed_cores(), f"{share:g} of {os.cpu_count()} cores", ""),
        ("threads", "slow", threads > at_once or (threads < at_once and idle), f"{threads} for {at_once} at once",
         f"set the variable OMP_NUM_THREADS={at_once}: with more, threads wait for each other, with fewer, cores idle"),
        ("memory", "low", memory < LITTLE_GIB, f"{memory:.1f} GiB for this process", "train small models here"),
        ("disk", "low", disk < LITTLE_GIB, f"{disk:.1f} GiB free in this folder", "write runs elsewhere with `out`"),
        ("gpu", "missing", not cuda, torch.cuda.get_device_name() if cuda else "no CUDA device that torch can use",
         "models above 30 million parameters need one, and a torch for its driver: see pytorch.org/get-started"),
    ):  # fmt: skip
        yield Finding(part, status if wrong else "ok", found, advice if wrong else "")
    yield _compile(device_of("auto"))
    for name, lacking in extras().items():
        advice = f"if you need it: pip install 'extrapolate[{name}]'" if lacking else ""
        status, found = ("missing", f"without {', '.join(lacking)}") if lacking else ("ok", "installed")
        yield Finding(f"extra {name}", status, found, advice)


def _compile(device: str) -> Finding:
    if not can_compile(device):
        advice = "long trainings are about a third faster compiled: install g++ (Debian: apt install g++ python3-dev)"
        return Finding("compile", "missing", "no C++ compiler: g++ or clang++", advice)
    began = time.perf_counter()
    try:
        torch.compile(lambda x: 2 * x + 1)(torch.arange(8.0, device=device))
    except Exception as error:  # compilers raise anything
        lines = [line.strip() for line in str(error).splitlines() if "error:" in line.lower()] or [type(error).__name__]
        advice = "give `compile=False`, or install what is missing (Debian: apt install g++ python3-dev)"
        return Finding("compile", "missing", f"torch.compile fails: {lines[0]}", advice)
    took = time.perf_counter() - began
    return Finding("compile", "ok", f"torch.compile works: a small function took {took:.1f} s")


def extras() -> dict[str, list[str]]:
    """The packages that each extra for users lacks. Empty if extrapolate itself is not installed as a package."""
    there = {one.name.lower().replace("_", "-") for one in metadata.distributions()}
    found: dict[str, list[str]] = {}
    for requirement in (metadata.requires("extrapolate") or []) if "extrapolate" in there else []:
        if (match := _EXTRA.match(requirement)) and match[2] not in DEVELOPERS:
            found.setdefault(match[2], []).extend({match[1].lower().replace("_", "-")} - there)
    return found
