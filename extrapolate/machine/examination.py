"""What this machine offers for training and evaluation, what makes it slow, and what to do about it."""

import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from extrapolate.machine.devices import can_compile, device_of
from extrapolate.machine.limits import cores, cpu_quota, memory_limit

GIB = 2**30
LITTLE_GIB = 4.0  # of memory or disk: an evaluation at 16 times a long training length needs more
_MEMORY = Path("/proc/meminfo")
DISTRIBUTION = "extrapolate"
DEVELOPERS = frozenset({"test", "mutants", "site"})  # extras for work on this project itself
_EXTRA = re.compile(r"""^([\w.-]+).*;.*\bextra == ["']([\w-]+)["']""")


@dataclass(frozen=True)
class Finding:
    """One part of the machine. status: `ok`, `slow`, `low` or `missing`. value: in `unit`. advice: what to do."""

    part: str
    status: str
    found: str
    value: float | None = None
    unit: str | None = None
    advice: str | None = None


def examine(folder: Path) -> Iterator[Finding]:
    """Examines every part in turn, which takes seconds. folder: where runs are written."""
    yield Finding("torch", "ok", f"torch {torch.__version__}")
    yield from (_cores(), _threads(), _memory(), _disk(folder), _gpu(), _compile())
    for name, packages in extras().items():
        if lacking := [package for package, version in packages.items() if version is None]:
            advice = f"if you need it: pip install 'extrapolate[{name}]'"
            yield Finding(f"extra {name}", "missing", f"without {', '.join(lacking)}", advice=advice)
        else:
            there = ", ".join(f"{package} {version}" for package, version in packages.items())
            yield Finding(f"extra {name}", "ok", there)


def _cores() -> Finding:
    count, quota = cores(), cpu_quota()
    if quota is None or quota >= count:
        return Finding("cores", "ok", f"{count} cores", count, "cores")
    return Finding("cores", "slow", f"{count} cores, of whose time this process gets {quota:g}", quota, "cores")


def _threads() -> Finding:
    count, quota = torch.get_num_threads(), cpu_quota()
    may = cores() if quota is None else max(1, min(cores(), int(quota)))
    found, why = f"{count} {'thread' if count == 1 else 'threads'}", os.environ.get("OMP_NUM_THREADS")
    if count > may:
        advice = f"threads wait for each other: set the variable OMP_NUM_THREADS={may}"
        return Finding(
            "threads", "slow", f"{found}, more than the {may} that can run at once", count, "threads", advice
        )
    if count < may and why is not None:
        advice = "unset OMP_NUM_THREADS, unless other programs are busy too"
        return Finding("threads", "slow", f"{found}, because OMP_NUM_THREADS={why}", count, "threads", advice)
    return Finding("threads", "ok", found, count, "threads")


def _memory() -> Finding:
    most = memory_limit() / GIB
    free = most
    for line in _MEMORY.read_text().splitlines() if _MEMORY.exists() else []:
        if line.startswith("MemAvailable:"):
            free = min(most, int(line.split()[1]) * 1024 / GIB)
    return _room("memory", free, f"of {most:.1f} GiB", "train small models here, or close other programs")


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free / GIB
    return _room("disk", free, "in this folder", "free some space, or write runs elsewhere with `out`")


def _room(part: str, free: float, where: str, advice: str) -> Finding:
    little = free < LITTLE_GIB
    return Finding(
        part, "low" if little else "ok", f"{free:.1f} GiB free {where}", free, "GiB", advice if little else None
    )


def _gpu() -> Finding:
    if torch.cuda.is_available():
        size = torch.cuda.get_device_properties(0).total_memory / GIB
        return Finding("gpu", "ok", f"{torch.cuda.get_device_name()}, {size:.0f} GiB", size, "GiB")
    if shutil.which("nvidia-smi") is None:
        return Finding("gpu", "missing", "no CUDA device", advice="models above 30 million parameters need a GPU")
    why = (
        "this torch is built without CUDA"
        if torch.version.cuda is None
        else f"this torch needs CUDA {torch.version.cuda}"
    )
    advice = "install a torch for this machine's driver: see pytorch.org/get-started"
    return Finding("gpu", "missing", f"there is an NVIDIA driver, and torch cannot use it: {why}", advice=advice)


def _compile() -> Finding:
    device = device_of("auto")
    if not can_compile(device):
        advice = "long trainings are about a third faster compiled: install g++ (Debian: apt install g++ python3-dev)"
        return Finding("compile", "missing", "no C++ compiler: g++ or clang++", advice=advice)
    given = torch.arange(8.0, device=device)
    began = time.perf_counter()
    try:
        right = torch.equal(torch.compile(_to_compile)(given), _to_compile(given))
    except Exception as error:  # compilers raise anything
        lines = [line.strip() for line in str(error).splitlines() if "error:" in line.lower()] or [type(error).__name__]
        advice = "give `compile=False`, or install what is missing (Debian: apt install g++ python3-dev)"
        return Finding("compile", "missing", f"torch.compile fails: {lines[0]}", advice=advice)
    took = time.perf_counter() - began
    if not right:
        return Finding("compile", "missing", "torch.compile computes something else", advice="give `compile=False`")
    return Finding("compile", "ok", f"torch.compile works: a small function took {took:.1f} s", took, "s")


def _to_compile(x: torch.Tensor) -> torch.Tensor:
    return 2 * x + 1


def extras() -> dict[str, dict[str, str | None]]:
    """The packages of each extra for users, with their installed version or None.

    Empty if extrapolate itself is not installed as a package.
    """
    found: dict[str, dict[str, str | None]] = defaultdict(dict)
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    for requirement in required:
        if (match := _EXTRA.match(requirement)) and match[2] not in DEVELOPERS:
            found[match[2]][match[1]] = _version(match[1])
    return dict(found)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
