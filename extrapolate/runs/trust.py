"""Which Python files that came with data may run: those whose content this user has run before, or trusts now.

A file that the user names, as in `--pe my_file.py:MyEncoding`, runs. The copy of it in a run's folder runs too, for it
has the same content. A folder that someone sent holds other content, and a study names other files: these run only with
`trust_code`.

The hashes are kept in `trusted-code` in the folder extrapolate of the user's settings, a line for each file.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from extrapolate.errors import UserError
from extrapolate.specs import user_files

F = TypeVar("F", bound=Callable[..., Any])
_now: set[str] = set()  # of this process: a home that cannot be written keeps none
_decision: ContextVar[bool] = ContextVar("decision", default=False)


def decided(call: F) -> F:
    """A public call whose `trust_code` decides for all that it does: see `check`. No other process inherits it."""

    @wraps(call)
    def deciding(*arguments: Any, trust_code: bool = False, **named: Any) -> Any:
        before = _decision.set(trust_code)
        try:
            return call(*arguments, **named)
        finally:
            _decision.reset(before)

    return cast(F, deciding)


def allow(sha256: str, file: Path) -> None:
    """Lets files with this content run, now and later."""
    if sha256 in _allowed():
        return
    _now.add(sha256)
    place = record()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as lines:
            lines.write(f"{sha256} {file.name!r}\n")
    except OSError:  # then the user is asked again next time
        return


def check(sha256: str, file: Path) -> None:
    """Raises UserError if a file with this content may not run. In a call with `trust_code`, it may from now on."""
    if _decision.get():
        allow(sha256, file)
    if sha256 not in _allowed():
        raise UserError(
            f"{file} is Python code that came with data, and you have not run it before: read it, and add "
            "`trust_code=True` if you trust it"
        )


@contextlib.contextmanager
def required(trust_code: bool) -> Iterator[set[str]]:
    """Within it, no Python file runs that is not trusted, wherever it is named: the names came with data too.

    trust_code: the user trusts these files. Gives the hashes of those that have run, which grow.
    """
    ran: set[str] = set()

    def check_first(sha256: str, file: Path) -> None:
        if trust_code:
            allow(sha256, file)
        check(sha256, file)
        ran.add(sha256)

    with user_files.checking(check_first):
        yield ran


@contextlib.contextmanager
def only(hashes: Collection[str]) -> Iterator[None]:
    """Within it, no Python file runs but those with these hashes: another process has checked them."""

    def check_same(sha256: str, file: Path) -> None:
        if sha256 not in hashes:
            raise UserError(f"{file} was changed since the command began: run the same command again")

    with user_files.checking(check_same):
        yield


def record() -> Path:
    """Where the hashes are kept."""
    settings = os.environ.get("XDG_CONFIG_HOME")
    return (Path(settings) if settings else Path.home() / ".config") / "extrapolate" / "trusted-code"


def _allowed() -> set[str]:
    try:
        lines = record().read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return _now | {line.partition(" ")[0] for line in lines}
