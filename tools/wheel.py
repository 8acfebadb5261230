"""Installs the wheel as users do, and runs it there: python tools/wheel.py [pip:3.11 uv:3.13 ...]

The wheel is built from a clean clone of this repository. Each way puts it into an empty environment, with the versions
of constraints.txt: `pip install` into a new venv, `pipx install`, and `uv tool install`. There it must start. What was
installed first for a Python also trains, evaluates and reports on a very small model, in an empty folder. Without
arguments, every way is tried with Python 3.11, 3.12 and 3.13.

A Python that is neither here nor to be had is named, and nothing is tried with it. The exit code is 1 where something
failed, or where no Python was to be had.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVERY = [f"{way}:{version}" for version in ("3.11", "3.12", "3.13") for way in ("pip", "pipx", "uv")]


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """Runs a command to its end; returns what it wrote. Raises CalledProcessError where it fails."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=os.environ | environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def executable_of(python: str | Path) -> str | None:
    """The program itself; None where it does not run, such as a stand-in for a Python that is switched off."""
    try:
        return run(python, "-c", "import sys; print(sys.executable)").strip()
    except (OSError, subprocess.CalledProcessError):
        return None


class Installs:
    """The ways to install a wheel, each into a folder of its own below `place`."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self.place, self.wheel = place, wheel
        self.constraints = ROOT / "constraints.txt"
        self.tools = place / "tools" / "bin"
        run(sys.executable, "-m", "venv", self.tools.parent)
        run(self.tools / "python", "-m", "pip", "install", "-q", "uv", "pipx")
        # uv reads no settings of pip's: where wheels lie on this machine, it is told.
        links = os.environ.get("PIP_FIND_LINKS")
        self.uv_links = {"UV_FIND_LINKS": links} if links else {}

    def python(self, version: str) -> str | None:
        """A Python of this version: one that is here, of the system or of pyenv, or one that uv gets; None for none."""
        of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        for found in (shutil.which(f"python{version}"), *of_pyenv):
            if found is not None and (executable := executable_of(found)):
                return executable
        try:
            run(self.tools / "uv", "python", "install", version, UV_HTTP_TIMEOUT="20")
            return run(self.tools / "uv", "python", "find", version).strip()
        except subprocess.CalledProcessError:
            return None

    def pip(self, python: str, folder: Path) -> Path:
        """`python -m venv`, and `pip install`. Returns the program, as the other ways do."""
        run(python, "-m", "venv", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "-q", "-c", self.constraints, self.wheel)
        return folder / "bin" / "extrapolate"

    def pipx(self, python: str, folder: Path) -> Path:
        """`pipx install`."""
        given = ["--python", python, f"--pip-args=-c {self.constraints}"]
        run(
            self.tools / "pipx", "install", *given, self.wheel, PIPX_HOME=str(folder), PIPX_BIN_DIR=str(folder / "bin"),
            PIPX_MAN_DIR=str(folder / "man"),
        )  # fmt: skip
        return folder / "bin" / "extrapolate"

    def uv(self, python: str, folder: Path) -> Path:
        """`uv tool install`."""
        run(
            self.tools / "uv", "tool", "install", "-q", "--python", python, "-c", self.constraints, self.wheel,
            UV_TOOL_DIR=str(folder), UV_TOOL_BIN_DIR=str(folder / "bin"), **self.uv_links,
        )  # fmt: skip
        return folder / "bin" / "extrapolate"


def build(place: Path) -> Path:
    """The wheel of a clean clone, as of the last commit."""
    run("git", "clone", "-q", "--depth", "1", f"file://{ROOT}", place / "clone")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place, place / "clone")
    (wheel,) = place.glob("*.whl")
    return wheel


def try_out(program: Path, empty: Path, trains: bool) -> None:
    """Starts the program in an empty folder, and trains, evaluates and reports there if asked."""
    empty.mkdir()
    run(program, "--version", cwd=empty)
    run(program, "encodings", "rope", cwd=empty)
    if trains:
        run(program, "train", "--pe", "rope", "--seq-len", 64, "--tokens", 8192, cwd=empty)
        run(program, "eval-lengths", "ckpt", "--factors", "1,4", cwd=empty)
        run(program, "report", "ckpt", "--out", "report", cwd=empty)
        assert (empty / "report" / "report.html").stat().st_size > 0


def main(asked: list[str]) -> int:
    """Tries every WAY:VERSION that is asked for, says how each ended, and returns the exit code."""
    pairs = [one.split(":") for one in asked]
    failed, tried = False, set()
    with tempfile.TemporaryDirectory(prefix="extrapolate-wheel-") as made:
        place = Path(made)
        wheel = build(place)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e3:.0f} kB", flush=True)
        installs = Installs(place, wheel)
        pythons = {version: installs.python(version) for version in dict.fromkeys(version for _, version in pairs)}
        for way, version in pairs:
            if (python := pythons[version]) is None:
                print(f"Python {version}, {way}: not tried, as it is not here, and uv cannot get it", flush=True)
                continue
            began = time.monotonic()
            folder, install = place / f"{way}-{version}", getattr(installs, way)
            said = attempt(install, python, folder, trains=version not in tried)
            tried.add(version)
            failed |= bool(said)
            print(f"Python {version}, {way}: {said or 'ok'} ({time.monotonic() - began:.0f} s)", flush=True)
            shutil.rmtree(folder, ignore_errors=True)  # gigabytes
    return int(failed or not tried)


def attempt(install: Callable[[str, Path], Path], python: str, folder: Path, trains: bool) -> str:
    """Installs and tries out. Returns what went wrong, an empty text where nothing did."""
    try:
        program = install(python, folder)
        try_out(program, folder.with_name(f"{folder.name}-empty"), trains)
    except subprocess.CalledProcessError as error:
        return f"failed: {' '.join(error.cmd)}\n{error.output}"
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("asked", nargs="*", metavar="WAY:VERSION", default=EVERY)
    sys.exit(main(parser.parse_args().asked))
