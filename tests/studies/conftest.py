"""A stand-in for Ray, so that the tests of studies need no processes of their own."""

import contextlib
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from extrapolate.studies import ray_engine


@pytest.fixture(autouse=True)
def _causality_unasked(causality_unasked: None) -> None:
    """tests/training/test_causality.py asks."""


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
