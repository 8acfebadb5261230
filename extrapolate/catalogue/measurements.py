"""The measurements and their quantities, made from the code: a section of docs/inspection.md."""

import inspect

from extrapolate.inspection.measurements.base import measurements


def measurements_section() -> str:
    """Every measurement, with its quantities."""
    lines = []
    for name in measurements.names():
        cls = measurements[name]
        lines += [f"### {name}", "", inspect.cleandoc(cls.__doc__ or ""), ""]
        for quantity, (unit, meaning) in cls.quantities.items():
            lines.append(f"- `{quantity}`{f' ({unit})' if unit else ''}. {meaning}")
        at = f"`at` is {cls.at}.\n" if cls.at else ""
        lines += ["", f"{at}Source: {cls.source}.", ""]
    return "\n".join(lines).rstrip()
