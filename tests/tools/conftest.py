"""The scripts of tools/, loaded as modules."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def load() -> Iterator[Callable[[str], ModuleType]]:
    """Loads the script of a name, which may import those beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))

        def made(name: str) -> ModuleType:
            spec = importlib.util.spec_from_file_location(f"tools_{name}", TOOLS / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            patch.setitem(sys.modules, spec.name, module)  # where dataclasses look their module up
            spec.loader.exec_module(module)
            return module

        yield made
