"""Where a result comes from."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import extrapolate
from extrapolate.runs import provenance


@pytest.fixture
def commit() -> Iterator[Callable[[], str]]:
    """The function, asked anew each time."""

    def ask() -> str:
        provenance.commit.cache_clear()
        return provenance.commit()

    yield ask
    provenance.commit.cache_clear()


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Git in a repository of the test's own, in which the package seems to lie."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)

    def run(*arguments: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run("init")
    package = tmp_path / "extrapolate"
    (package / "runs").mkdir(parents=True)
    (package / "runs/provenance.py").write_text("# as committed\n")
    run("add", ".")
    run("commit", "-m", "first")
    monkeypatch.setattr(provenance, "__file__", str(package / "runs/provenance.py"))
    return run


@pytest.mark.parametrize(("changed", "mark"), [(None, ""), ("extrapolate/runs/provenance.py", "+"), ("notes.txt", "")])
def test_the_commit_is_marked_if_the_package_has_changes(
    git: Callable[..., str], commit: Callable[[], str], tmp_path: Path, changed: str | None, mark: str
) -> None:
    if changed is not None:
        (tmp_path / changed).write_text("# changed\n")
    assert commit() == git("rev-parse", "HEAD")[:12] + mark


@pytest.mark.usefixtures("git")
def test_a_copy_installed_inside_another_repository_has_none(
    commit: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "venv" / "extrapolate"
    installed.mkdir(parents=True)
    monkeypatch.setattr(provenance, "__file__", str(installed / "runs/provenance.py"))
    assert commit() == ""


@pytest.mark.usefixtures("git")
def test_without_git_there_is_none(commit: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() == ""


def test_the_record_has_the_versions_in_use_and_is_json() -> None:
    record = provenance.provenance()
    assert json.loads(json.dumps(record)) == record
    assert record["version"] == extrapolate.__version__
    assert record["python"] == platform.python_version()
    libraries = record["libraries"]
    assert isinstance(libraries, dict)
    assert (libraries["numpy"], libraries["pyarrow"]) == (np.__version__, pa.__version__)
    assert {"torch", "tokenizers", "pandas", "datasets"} <= set(libraries)
