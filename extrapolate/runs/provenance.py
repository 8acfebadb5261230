"""The provenance of results: version, commit, libraries, machine."""

import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from extrapolate.machine.distributed import working
from extrapolate.machine.limits import allowed_cores
from extrapolate.version import __version__

_LIBRARIES = ("torch", "tokenizers", "numpy", "pyarrow", "pandas", "datasets")


@cache
def commit() -> str:
    """The commit of the working tree that this package runs from, with `+` if it has changes; empty if installed."""
    folder = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != folder.parent.resolve():
            return ""
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", str(folder)) else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


@cache
def machine() -> str:
    """The processor, its cores and the GPU if there is one: `AMD EPYC, 2 cores`."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    torch = sys.modules.get("torch")
    gpu = f", {torch.cuda.get_device_name()}" if torch is not None and torch.cuda.is_available() else ""
    cores = allowed_cores()
    return f"{name}, {cores} {'core' if cores == 1 else 'cores'}{gpu}"


def provenance() -> dict[str, object]:
    """For a run's config.json: versions, commit and machine, and the number of processes if there are several."""
    together = {"processes": working().world_size} if working().world_size > 1 else {}
    return {
        "version": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
        "machine": machine(),
        **together,
    }
