"""A short form of the last table of docs/results/coverage.md: false failures, and a step that is there."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "failure_coverage.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_failure_coverage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tools_failure_coverage", module)  # where dataclasses look their module up
        spec.loader.exec_module(module)
    return module


def test_heavy_tails_and_unequal_documents(tool: ModuleType) -> None:
    false, single, early, exact, _ = np.array([tool.tried(2, trial, trial < 1) for trial in range(8)], float).T
    assert false.sum() <= 1
    assert np.isfinite(single).sum() == 1
    assert early.sum() == 0
    assert exact.sum() >= 7
