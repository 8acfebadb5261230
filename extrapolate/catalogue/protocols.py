"""The table of protocols in docs/protocols.md, made from the code."""

import inspect

from extrapolate.catalogue.entries import arguments_of
from extrapolate.evaluation.protocols.base import protocols


def protocols_table() -> str:
    """A row for each protocol: its description, arguments, most targets, whether a report has its loss by position."""
    lines = ["| protocol | what it does | arguments | targets, at most | loss by position |", "|---|---|---|---|---|"]
    for name in protocols.names():
        cls = protocols[name]
        does = (inspect.getdoc(cls) or "").partition("\n")[0]
        arguments = ", ".join(f"`{a.name}={a.default}`" for a in arguments_of(cls))
        shown = "yes" if cls.positions else "no"
        lines.append(f"| [`{name}`](protocol-{name}.svg) | {does} | {arguments} | {cls.max_targets:,} | {shown} |")
    return "\n".join(lines)
