"""What `make wheel` says of Pythons that are not there, and of installations that fail."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def tool(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which builds nothing and downloads nothing: it has two Pythons, and one of the ways fails."""
    module = load("wheel")

    class Installs:
        def __init__(self, place: Path, wheel: Path) -> None:
            self.place = place

        def python(self, version: str) -> str | None:
            return None if version == "3.99" else f"python{version}"

        def pip(self, python: str, folder: Path) -> Path:
            folder.mkdir()
            program = folder / "extrapolate"
            program.write_text(
                '#!/bin/sh\nif [ "$1" = report ]; then\n  mkdir report\n  echo page > report/report.html\nfi\n'
            )
            program.chmod(0o755)
            return program

        def uv(self, python: str, folder: Path) -> Path:
            module.run("sh", "-c", "echo there is no such version; exit 3")
            raise AssertionError

    def build(place: Path) -> Path:
        (place / "made.whl").write_bytes(b"wheel")
        return place / "made.whl"

    monkeypatch.setattr(module, "Installs", Installs)
    monkeypatch.setattr(module, "build", build)
    return module


def test_a_wheel_that_works(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["pip:3.99", "pip:3.11"]) == 0
    said = capsys.readouterr().out
    assert "Python 3.99, pip: not tried, as it is not here, and uv cannot get it" in said
    assert "Python 3.11, pip: ok" in said


def test_a_way_that_fails_says_what_it_ran_and_the_others_are_tried(tool, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["uv:3.11", "pip:3.11"]) == 1
    said = capsys.readouterr().out
    assert "Python 3.11, uv: failed: sh -c" in said
    assert "there is no such version" in said
    assert "Python 3.11, pip: ok" in said


def test_the_first_way_with_a_python_trains(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(tool, "attempt", lambda install, python, folder, trains: tried.append((python, trains)))
    assert tool.main(["pip:3.11", "uv:3.11", "uv:3.13"]) == 0
    assert tried == [("python3.11", True), ("python3.11", False), ("python3.13", True)]


def test_a_stand_in_that_does_not_run_is_no_python(tool: ModuleType, tmp_path: Path) -> None:
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert tool.executable_of(shim) is None
    assert tool.executable_of(tmp_path / "nothing") is None
    assert tool.executable_of(sys.executable) == sys.executable


def test_without_any_python_nothing_was_shown(tool: ModuleType) -> None:
    assert tool.main(["pip:3.99"]) == 1
