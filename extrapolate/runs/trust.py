"""Decides which Python files may run: those whose content this user has run before, or trusts now.

A file that the user names, as in `--pe my_file.py:MyEncoding`, may run, and so may its copy in a run's folder, which
has the same content. The files in a folder that someone else sent, or that a study names, need `trust_code`.

The hashes are in `~/.config/extrapolate/trusted-code` (or below XDG_CONFIG_HOME), one line per file.
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
_now: set[str] = set()  # trusted in this process, in case the home folder is read-only
_decision: ContextVar[bool] = ContextVar("decision", default=False)


def decided(call: F) -> F:
    """Decorates a public function with `trust_code`, which applies to all that it does in this process: see `check`."""

    @wraps(call)
    def deciding(*arguments: Any, trust_code: bool = False, **named: Any) -> Any:
        before = _decision.set(trust_code)
        try:
            return call(*arguments, **named)
        finally:
            _decision.reset(before)

    return cast(F, deciding)


def check(sha256: str, file: Path) -> None:
    """Raises UserError if a file with this content may not run. In a call with `trust_code`, it may from now on."""
    if _decision.get():
        allow(sha256, file)
    if sha256 not in _allowed():
        raise UserError(
            f"{file} is code that came with data, and you have not run it before: read it, and add `trust_code=True` "
            "if you trust it"
        )


def allow(sha256: str, file: Path, recorded: bool = True) -> None:
    """Lets files with this content run, now and, if it is recorded, later."""
    if sha256 in _allowed():
        return
    _now.add(sha256)
    if recorded:
        with contextlib.suppress(OSError):  # the user is asked again next time
            record().parent.mkdir(parents=True, exist_ok=True)
            with record().open("a", encoding="utf-8") as lines:
                lines.write(f"{sha256} {file.name!r}\n")


@contextlib.contextmanager
def required(trust_code: bool) -> Iterator[set[str]]:
    """Inside it, only trusted Python files run, however they are named, since their names came with data too.

    trust_code: whether the user trusts these files. Yields the set of hashes of those that have run, which grows.
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
    """Inside it, only Python files with these hashes run, which another process has checked."""

    def check_same(sha256: str, file: Path) -> None:
        if sha256 not in hashes:
            raise UserError(f"{file} was changed since the command began: run the same command again")

    with user_files.checking(check_same):
        yield


def record() -> Path:
    """The file of trusted hashes."""
    settings = os.environ.get("XDG_CONFIG_HOME")
    return (Path(settings) if settings else Path.home() / ".config") / "extrapolate" / "trusted-code"


def _allowed() -> set[str]:
    try:
        return _now | {line.partition(" ")[0] for line in record().read_text("utf-8", errors="replace").splitlines()}
    except OSError:
        return _now
