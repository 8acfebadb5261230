"""A small study, and a stand-in for Ray, so that the tests of studies need no processes of their own."""

import contextlib
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from markupsafe import Markup

from extrapolate.data.store import Store
from extrapolate.studies import ray_engine
from extrapolate.studies.cells import cells_of
from extrapolate.studies.resolved import Resolved, resolve_cells
from extrapolate.studies.study import Study, read_study

# Its 12 lines end in a section that a test can continue.
SMALL = """\
[base]
data = "{store}"
seq_len = 16
tokens = 1024
batch_tokens = 512
layers = 1
precision = "fp32"
compile = false
[evaluate]
factors = [1]
protocols = ["windows"]
max_targets = 512
"""


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports draw nothing: tests/reports look at pictures."""
    monkeypatch.setattr("extrapolate.reports.plots.draw", lambda chart, path: path.touch())
    monkeypatch.setattr("extrapolate.reports.svg.drawn", lambda chart: Markup("<svg></svg>"))


@pytest.fixture
def small(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a study of small models with more lines, and other values of its settings, into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(more: str, **changed: object) -> Path:
        text = SMALL.format(store=store) + more
        for name, value in changed.items():
            text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
            assert count == 1, name
        file = tmp_path / "study.toml"
        file.write_text(text)
        return file

    return write


@pytest.fixture
def resolved(store: Path, tmp_path: Path) -> Callable[[Path], tuple[Study, list[Resolved]]]:
    """Reads a study's file, and makes its cells ready."""

    def call(file: Path) -> tuple[Study, list[Resolved]]:
        study = read_study(file)
        return study, resolve_cells(study, cells_of(study), {str(store): Store.open(store)}, tmp_path / "runs")

    return call


class Elsewhere:
    """As much of Ray as the engine uses. Each piece of work is done where `wait` is called."""

    exceptions = SimpleNamespace(RayTaskError=ArithmeticError, RayError=ArithmeticError)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0}}]

    def remote(self, **options: Any) -> Callable[..., Any]:
        class Reference:
            def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
                self.work = pickle.dumps((function, arguments))

        return lambda function: SimpleNamespace(remote=lambda *arguments: Reference(function, *arguments))

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def get(self, reference: Any) -> Any:
        function, arguments = pickle.loads(reference.work)
        return pickle.loads(pickle.dumps(function(*arguments)))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine ray works in this process."""
    monkeypatch.setattr(ray_engine, "_ray", Elsewhere)
    monkeypatch.setattr(ray_engine, "_cluster", lambda ray, address: contextlib.nullcontext())
