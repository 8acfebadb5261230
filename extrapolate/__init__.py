"""extrapolate: train short, test long, compare positional encodings fairly.

    import extrapolate as xt

    run = xt.train("rope", seq_len=64)
    table = xt.evaluate(run, factors=(1, 2, 4, 8, 16), extend="pi")

Calls are imported on first use, so that `import extrapolate` is fast. docs/python-api.md lists them all.
"""

import importlib
from typing import TYPE_CHECKING

from extrapolate.version import __version__ as __version__

if TYPE_CHECKING:
    from extrapolate.api.check import check as check
    from extrapolate.api.check import doctor as doctor
    from extrapolate.api.evaluate import estimate_evaluation as estimate_evaluation
    from extrapolate.api.evaluate import estimate_tasks as estimate_tasks
    from extrapolate.api.evaluate import evaluate as evaluate
    from extrapolate.api.evaluate import evaluate_probes as evaluate_probes
    from extrapolate.api.evaluate import evaluate_tasks as evaluate_tasks
    from extrapolate.api.evaluate import inspect as inspect
    from extrapolate.api.plot_encodings import plot_encodings as plot_encodings
    from extrapolate.api.rows import compare as compare
    from extrapolate.api.rows import report as report
    from extrapolate.api.rows import rows as rows
    from extrapolate.api.run import attention as attention
    from extrapolate.api.run import export as export
    from extrapolate.api.run import generate as generate
    from extrapolate.api.run import load as load
    from extrapolate.api.tokenize import tokenize as tokenize
    from extrapolate.api.train import train as train
    from extrapolate.encodings.base import Encoding as Encoding
    from extrapolate.errors import UserError as UserError
    from extrapolate.extensions.base import Extension as Extension
    from extrapolate.interop.foreign import foreign as foreign
    from extrapolate.studies.status import status as status
    from extrapolate.studies.sweep import estimate_sweep as estimate_sweep
    from extrapolate.studies.sweep import sweep as sweep
    from extrapolate.terminal import Terminal as Terminal

_PUBLIC = {
    "Encoding": "encodings.base", "Extension": "extensions.base", "Terminal": "terminal", "UserError": "errors",
    "attention": "api.run", "check": "api.check", "compare": "api.rows", "doctor": "api.check",
    "estimate_evaluation": "api.evaluate", "estimate_sweep": "studies.sweep", "estimate_tasks": "api.evaluate",
    "evaluate": "api.evaluate", "evaluate_probes": "api.evaluate",
    "evaluate_tasks": "api.evaluate", "export": "api.run", "foreign": "interop.foreign",
    "generate": "api.run", "inspect": "api.evaluate", "load": "api.run",
    "plot_encodings": "api.plot_encodings", "report": "api.rows", "rows": "api.rows", "status": "studies.status",
    "sweep": "studies.sweep", "tokenize": "api.tokenize", "train": "api.train",
}  # fmt: skip
__all__ = ["__version__", *_PUBLIC]


if not TYPE_CHECKING:  # type checkers know only the names above

    def __getattr__(name: str) -> object:
        if name not in _PUBLIC:
            raise AttributeError(f"module 'extrapolate' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"extrapolate.{_PUBLIC[name]}"), name)
        globals()[name] = value  # replaces a module of that name, if it was imported before
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
