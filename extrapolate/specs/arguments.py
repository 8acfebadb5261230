"""Checks of the arguments of public calls."""

from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError
from extrapolate.specs import truncate

Kind = tuple[type | tuple[type, ...], str]
TEXT: Kind = (str, "a text")
NUMBER: Kind = (Real, "a number")
WHOLE: Kind = (Integral, "a whole number")
PATH: Kind = ((str, Path), "a path")
FLAG: Kind = (bool, "true or false")


def check(parameter: str, value: Any, kind: Kind) -> None:
    """Raises UserError if a parameter's value is of another kind. True and False are not numbers."""
    types, words = kind
    if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
        given = f"'{truncate(value)}'" if isinstance(value, str) else truncate(value)
        raise UserError(f"`{parameter}`: {given} is not {words}")


def path(parameter: str, given: Any) -> Path:
    """A path. Raises UserError if it is neither a text nor a path."""
    check(parameter, given, PATH)
    return Path(given)


def several(parameter: str, given: Any, kind: Kind) -> tuple[Any, ...]:
    """One value or several, as a tuple. Raises UserError if one is of another kind."""
    values = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for value in values:
        check(parameter, value, kind)
    return values
