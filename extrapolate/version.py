"""This package's version, which every result carries, and what to say of a file that only another version knows."""

from pathlib import Path

from extrapolate.errors import UserError

__version__ = "0.1.0"


def unknown_here(path: Path, version: str, what: str) -> UserError:
    """The error of a file that extrapolate `version` wrote `what`, such as "in format 3"; this version knows less."""
    return UserError(
        f"{path} was written by extrapolate {version} {what}, which this version, {__version__}, does not know: "
        "upgrade extrapolate, or use the one that wrote the file"
    )
