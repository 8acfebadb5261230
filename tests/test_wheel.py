"""What a wheel holds: every file of the package that is under version control, and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KINDS = {".py", ".typed", ".toml", ".j2", ".css", ".js", ".yaml", ""}  # a part of tasks has none, so that it is no task


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """The files that a clean clone has."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone, so what belongs to it is not known")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a clean clone."""
    clone, out = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("wheel")
    for name in tracked:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    options = ["--no-deps", "--no-build-isolation", "-q", "-w", str(out), str(clone)]
    build = [sys.executable, "-m", "pip", "wheel", *options]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = out.iterdir()
    return built


def test_it_holds_the_package_and_nothing_else(wheel: Path, tracked: list[str]) -> None:
    about, package = [], []
    for name in zipfile.ZipFile(wheel).namelist():
        (about if ".dist-info/" in name else package).append(name)
    assert sorted(package) == sorted(name for name in tracked if name.startswith("extrapolate/"))
    assert {Path(name).suffix for name in package} == KINDS
    assert {"extrapolate/py.typed", "extrapolate/reports/published.toml"} <= set(package)
    assert any(name.endswith("/licenses/LICENSE") for name in about)


def test_it_says_what_it_needs(wheel: Path) -> None:
    """Its extras resolve: each names packages, and extras that there are."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
    lines = archive.read(name).decode().splitlines()
    extras = {line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra: ")}
    named = {
        line.partition("[")[2].partition("]")[0] for line in lines if line.startswith("Requires-Dist: extrapolate[")
    }
    assert {"ray", "trackers", "texts", "int8", "lm-eval"} <= extras
    assert {part for text in named for part in text.split(",")} <= extras
    entry = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "extrapolate = extrapolate.cli:main" in entry
