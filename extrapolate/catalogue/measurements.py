"""The page of measurements, made from the code: docs/measurements.md."""

import inspect

from extrapolate.inspection.measurements.base import measurements

INTRODUCTION = """\
# Measurements

Made from the code by `make docs`. These are the measurements of `extrapolate inspect`, with their quantities.
[inspection.md](inspection.md) says what they found in two models, and what may be concluded. L is the training length.
"""


def measurements_page() -> str:
    """docs/measurements.md."""
    lines = [INTRODUCTION]
    for name in measurements.names():
        cls = measurements[name]
        lines += [f"## {name}", "", inspect.cleandoc(cls.__doc__ or ""), ""]
        lines += ["| quantity | unit | what it is |", "|---|---|---|"]
        lines += [f"| `{quantity}` | {unit} | {meaning} |" for quantity, (unit, meaning) in cls.quantities.items()]
        lines += ["", *([f"`at` is {cls.at}.", ""] if cls.at else []), f"Source: {cls.source}.", ""]
    return "\n".join(lines).rstrip() + "\n"
