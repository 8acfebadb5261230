"""Runs the user's own Python files, which nothing else does, and makes the messages if they fail."""

import contextlib
import hashlib
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from extrapolate.errors import UserError
from extrapolate.specs import USER_MODULE, Registry, check_signature, did_you_mean

T = TypeVar("T")


def find_class(name: str, known: Registry[T], base: type[T]) -> tuple[type[T], Path | None]:
    """The class with a registered name, or of `path/to/file.py:Class`, and its file. Raises UserError."""
    file, _, class_name = name.rpartition(":")
    if name.endswith(".py"):
        raise UserError(f"{name} is a file: name the class in it too, {name}:My{base.__name__}")
    if not file.endswith(".py"):
        return known[name], None
    return load_user_class(Path(file), class_name, base), Path(file)


def load_user_class(file: Path, name: str, base: type[T]) -> type[T]:
    """The class `name` of the Python file `file`, which must derive from `base`.

    Raises UserError if the file, the class or its base is missing, the file does not import, or the arguments of the
    class cannot be a configuration.
    """
    found = {key: value for key, value in _names_of(file).items() if isinstance(value, type)}
    candidates = {key: value for key, value in found.items() if issubclass(value, base) and value is not base}
    if name not in candidates:
        raise UserError(f"{file} has no {base.__name__} called '{name}'; {did_you_mean(name, candidates)}")
    check_signature(candidates[name], base, file)
    return candidates[name]


def derives(file: Path, name: str, base: type) -> bool:
    """Whether the class `name` of a Python file derives from `base`. Raises UserError if the file does not import."""
    cls = _names_of(file).get(name)
    return isinstance(cls, type) and issubclass(cls, base)


def load_function(file: Path, name: str) -> Callable[[], Any]:
    """The function `name` of the Python file `file`. Raises UserError if it is missing or needs arguments."""
    found = {key: value for key, value in _names_of(file).items() if inspect.isfunction(value)}
    if name not in found:
        raise UserError(f"{file} has no function called '{name}'; {did_you_mean(name, found)}")
    try:
        inspect.signature(found[name]).bind()
    except TypeError:
        raise UserError(f"{file}: {name} must take no arguments, and be called as {name}()") from None
    return found[name]


# Called with the SHA-256 and the path of a Python file before it runs; raises UserError if it may not.
_check: ContextVar[Callable[[str, Path], None]] = ContextVar("check", default=lambda sha256, file: None)


@contextlib.contextmanager
def checking(check: Callable[[str, Path], None]) -> Iterator[None]:
    """A context in which `check` is called with the SHA-256 and path of every Python file before it runs."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def _names_of(file: Path) -> dict[str, Any]:
    """The names that a Python file defines, after running it."""
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    content = file.read_bytes()
    _check.get()(hashlib.sha256(content).hexdigest(), file)
    digest = hashlib.sha256(str(file.resolve()).encode() + content).hexdigest()[:16]
    module = types.ModuleType(f"{USER_MODULE}{digest}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look their module up

    def load() -> dict[str, Any]:
        # Not with an import, which could run another file: a compiled one beside it.
        exec(compile(content, str(file), "exec", dont_inherit=True), vars(module))
        return dict(vars(module))

    def wrong(error: BaseException) -> UserError:
        del sys.modules[module.__name__]
        hint = '; put what only a script does under if __name__ == "__main__":' * isinstance(error, SystemExit)
        return UserError(f"{file} does not import: {type(error).__name__}: {error}{hint}")

    return of_user(load, wrong)


def of_user(call: Callable[[], T], wrong: Callable[[BaseException], BaseException]) -> T:
    """Calls a user's own code and returns its result. Raises `wrong(error)` for its errors, but not for Ctrl-C.

    This includes SystemExit, which would end the program as if nothing were wrong.
    """
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if (instead := wrong(error)) is error:
            raise
        raise instead from error


def described(error: BaseException, file: Path) -> str:
    """`IndexError: index 64 is out of bounds, in line 12`: the first line of an error, and where the file raised it."""
    first, _, _ = str(error).strip().partition("\n")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return type(error).__name__ + (f": {first}" if first else "") + (f", in line {lines[-1]}" if lines else "")


def mistake_of_user(error: BaseException) -> UserError | None:
    """The message for an error raised in a user's own file, or None for other errors and those that are clear."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [one.f_code for one in frames if str(one.f_globals.get("__name__")).startswith(USER_MODULE)]
    if not own or isinstance(error, UserError | OSError | MemoryError | KeyboardInterrupt):
        return None
    file = own[-1].co_filename
    return UserError(f"{file}: {own[-1].co_name} failed: {described(error, Path(file))}")
