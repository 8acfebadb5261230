"""Settings of matplotlib for the pictures of this package, whatever a `matplotlibrc` says."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any


@contextmanager
def own_settings(more: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
    """Draws and saves with matplotlib's defaults, and `more`, so that the same rows give the same file in every folder.

    matplotlib reads a `matplotlibrc` from the current folder when it is first imported, and a damaged one is an error
    there. It is imported from the folder of its own one. The settings of a program that imported it before come back.
    """
    found = None if "matplotlib" in sys.modules else find_spec("matplotlib")
    with nullcontext() if found is None else chdir(Path(str(found.origin)).parent / "mpl-data"):
        import matplotlib as mpl
        import matplotlib.style
    settings: Any = {"svg.hashsalt": "extrapolate", **more}
    with mpl.style.context("default"), mpl.rc_context(settings):
        yield
