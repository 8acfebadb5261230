"""Loads an extension from the user's own file, and says what is missing in it."""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from extrapolate import specs
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, extensions
from extrapolate.specs import user_files
from extrapolate.specs.user_files import described

T = TypeVar("T")


@dataclass(frozen=True)
class UserFile:
    """A user's file and its content when it was read."""

    path: Path
    content: bytes

    @property
    def sha256(self) -> str:
        """The hash of its content."""
        return hashlib.sha256(self.content).hexdigest()


def find(name: str) -> tuple[type[Extension], UserFile | None]:
    """The class called `name`, a registered name or `path/to/file.py:Class`, and its file. Raises UserError."""
    file, _, class_name = name.rpartition(":")
    if name.endswith(".py"):
        raise UserError(f"{name} is a file: name the class in it too, {name}:MyExtension")
    if not file.endswith(".py"):
        return extensions[name], None
    path = Path(file)
    # mypy wants a concrete class wherever a type is given; this one is compared with, and never made.
    cls = user_files.load_user_class(path, class_name, Extension)  # type: ignore[type-abstract]
    if inspect.isabstract(cls):
        raise UserError(f"{path}: {class_name} needs def plan(self, encoding, seq_len, length), which returns a Plan")
    meanings = {
        "display": f'which is its name in tables: write display = "{class_name}"',
        "slot": 'what of a plan it fills: write slot = "positions", for example',
        "needs": "what an encoding must accept: write needs = POSITIONS, for example (of extrapolate.encodings.base)",
    }
    for attribute, meaning in meanings.items():
        if not isinstance(getattr(cls, attribute, None), str):
            raise UserError(f"{path}: {class_name} has no {attribute}, {meaning}")
    return cls, UserFile(path, path.read_bytes())


def guarded(cls: type[Extension], what: str, call: Callable[[], T]) -> T:
    """Calls an extension's code; an error in a user's own file becomes a UserError that names the file."""
    if not cls.__module__.startswith(specs.USER_MODULE):
        return call()
    file = Path(inspect.getfile(cls))

    def wrong(error: BaseException) -> BaseException:
        return error if isinstance(error, UserError) else UserError(f"{file}: {what} failed: {described(error, file)}")

    return user_files.of_user(call, wrong)
