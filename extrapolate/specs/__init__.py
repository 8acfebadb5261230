"""Specs of encodings and extensions, `name:key=value,key=value`, and the objects that they stand for.

A value can be a spec in parentheses: `random:base=(rope:theta=500),max=2048`.
A user's own class is named by its file: `path/to/mine.py:MyEncoding:key=value`.
"""

import difflib
import importlib
import inspect
import math
import pkgutil
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from extrapolate.errors import UserError

T = TypeVar("T")
_PACKAGE = __name__[: __name__.rfind(".") + 1]  # or the folder of an exported model, which has copies of modules
USER_MODULE = "extrapolate_user_"  # the prefix of the modules of users' files
LONGEST_TEXT = 10_000  # characters of a spec
DEEPEST = 20  # nested parentheses
LARGEST_WHOLE = 2**53  # up to here float64 has every whole number
LARGEST_FLOAT = 3.4e38  # tensors are float32
SHOWN = 120  # characters of a given value in a message
MOST_LISTED, FEW_LISTED = 60, 5  # names in the message about a wrong one
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_FILE_SPEC = re.compile(r"^(?P<file>[^:()=,]+\.py):(?P<name>[A-Za-z_]\w*)(?::(?P<arguments>.*))?$")


@dataclass(frozen=True)
class Spec:
    """A parsed spec: the name (`rope`, or `mine.py:MyEncoding`) and its arguments, as written."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)


def parse(text: str) -> Spec:
    """Parses `name:key=value,...`. Raises UserError if the text has another form."""
    check_text(text)
    text = text.strip()
    if match := _FILE_SPEC.match(text):
        name, arguments = f"{match['file']}:{match['name']}", match["arguments"] or ""
    else:
        name, arguments = (part.strip() for part in (*text.split(":", 1), "")[:2])
    if not name:
        raise UserError(f"'{truncate(text)}' names nothing: expected name:key=value,key=value")
    pairs: dict[str, str] = {}
    for part in split_outside_parentheses(arguments, ","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise UserError(f"'{truncate(part)}' in '{truncate(text)}' is not an argument: expected key=value")
        if key in pairs:
            raise UserError(f"'{truncate(key)}' is given twice in '{truncate(text)}'")
        pairs[key] = unwrapped(value)
    return Spec(name, pairs)


def check_text(text: str) -> None:
    """Raises UserError if a text is too long for a spec, or contains a NUL character."""
    if len(text) > LONGEST_TEXT:
        raise UserError(f"'{truncate(text)}' has {len(text):,} characters: a spec has at most {LONGEST_TEXT:,}")
    if "\0" in text:
        raise UserError(f"{text[:SHOWN]!r} contains a NUL byte")


def truncate(value: Any) -> str:
    """A given value for a message, in at most SHOWN characters: the middle of a longer one is left out."""
    if not isinstance(value, str | int | float | bool | None):
        return f"a {type(value).__name__}"
    try:
        text = str(value)
    except ValueError:  # Python refuses to write more than some thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}…{text[-SHOWN // 2 + 1 :]}"


def spell(name: str, arguments: Mapping[str, Any]) -> str:
    """The text that `parse` parses. Values that are specs get parentheses."""
    pairs = []
    for key, value in arguments.items():
        text = str(value)
        pairs.append(f"{key}=({text})" if any(mark in text for mark in ":,=()") else f"{key}={text}")
    return name + (":" + ",".join(pairs) if pairs else "")


def unwrapped(value: str) -> str:
    """`(rope:theta=5)` -> `rope:theta=5`. `(a)+(b)` is unchanged: its first parenthesis closes before its end."""
    if not (value.startswith("(") and value.endswith(")")):
        return value
    try:
        split_outside_parentheses(value[1:-1], ",")
    except ValueError:
        return value
    return value[1:-1]


def split_outside_parentheses(text: str, separator: str) -> list[str]:
    """`a,(b,c),d` at `,` -> `a`, `(b,c)`, `d`. Empty parts are dropped.

    Raises UserError if the text is too long, or its parentheses do not match or are nested too deeply.
    """
    check_text(text)
    parts, depth, current = [], 0, ""
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if depth > DEEPEST:
            raise UserError(f"'{truncate(text)}' has more than {DEEPEST} parentheses in one another")
        if character == separator and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    if depth != 0:
        raise UserError(f"the parentheses of '{truncate(text)}' do not match")
    return [part for part in [*parts, current] if part.strip()]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'rope'?` if a known name is similar, else all known names, or the nearest ones if they are many."""
    known = sorted(known)
    if near := difflib.get_close_matches(word[:SHOWN], known, n=1):
        return f"did you mean '{near[0]}'?"
    if len(known) > MOST_LISTED:
        nearest = difflib.get_close_matches(word[:SHOWN], known, n=FEW_LISTED, cutoff=0)
        return f"of {len(known):,} names the nearest are {', '.join(nearest)}"
    return f"known: {', '.join(known) or 'none'}"


@dataclass(frozen=True)
class Parameter:
    """One keyword argument of an encoding or extension."""

    name: str
    type: Any
    default: Any

    def convert(self, value: Any, owner: str) -> Any:
        """Converts a spec's text, or a JSON value, to this parameter's type. Raises UserError if that is impossible."""
        choices, optional = _choices(self.type)
        if optional and value is None:
            return None
        for kind in choices:
            try:
                converted = _convert(value, kind)
            except (ValueError, TypeError, OverflowError):  # OverflowError: a whole number too large for a float
                continue
            most = {int: LARGEST_WHOLE, float: LARGEST_FLOAT}.get(kind)
            if most is not None and abs(converted) > most:
                raise UserError(f"{owner}: {self.name} must be at most {most}, not {truncate(value)}")
            return converted
        if optional and isinstance(value, str) and value.lower() == "none":
            return None
        raise UserError(f"{owner}: {self.name}={truncate(value)} is not {self.kind()}")

    def kind(self) -> str:
        """The type of its values, in words."""
        return " or ".join(map(_type_name, _choices(self.type)[0]))


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(str(choice) for choice in typing.get_args(kind))
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
    return names[kind] if kind in names else str(getattr(kind, "__name__", kind))


def kinds_of(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or a single type. An annotation that is text gives texts."""
    if isinstance(annotation, str):
        return tuple(annotation.split(" | "))
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if union else (annotation,)


def _choices(annotation: Any) -> tuple[list[Any], bool]:
    kinds = kinds_of(annotation)
    return [kind for kind in kinds if kind is not types.NoneType], types.NoneType in kinds


def _convert(value: Any, kind: Any) -> Any:
    if not isinstance(value, str | int | float):
        raise TypeError(value)
    if typing.get_origin(kind) is typing.Literal:
        for choice in typing.get_args(kind):
            if str(choice) == str(value):
                return choice
        raise ValueError(value)
    if kind is bool:
        if str(value).lower() not in ("true", "false"):
            raise ValueError(value)
        return str(value).lower() == "true"
    if (kind in (int, float) and isinstance(value, bool)) or (kind is int and isinstance(value, float)):
        raise ValueError(value)
    if kind is int and isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError(value)  # Python also accepts 1_000 and digits of other alphabets
    if kind is float and isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError(value)
    converted = kind(value)
    if isinstance(converted, float) and not math.isfinite(converted):
        raise ValueError(value)
    return converted + 0.0 if kind is float else converted  # no -0.0, which would be a second name for 0


def parameters(cls: type) -> dict[str, Parameter]:
    """The keyword-only arguments of a class, which are its configuration."""
    signature = inspect.signature(cls, eval_str=True)
    return {
        name: Parameter(name, parameter.annotation, parameter.default)
        for name, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def inherited_methods(cls: type) -> dict[str, str]:
    """The methods and properties that a class has from classes of other files, with the name of the class."""
    others = [base for base in reversed(cls.__mro__) if base.__module__ != cls.__module__]
    found = {name: (base, value) for base in others for name, value in vars(base).items()}
    return {name: base.__name__ for name, (base, value) in found.items() if callable(value) or type(value) is property}


def check_signature(cls: type, base: type, file: Path) -> None:
    """Raises UserError if an argument of a user's class cannot be part of a configuration.

    Arguments beyond those of `base` must be keyword-only, with a default and a type that text can be converted to.
    """
    try:
        given = inspect.signature(cls, eval_str=True).parameters.values()
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise UserError(f"{file}: the annotations of {cls.__name__}.__init__ cannot be read: {error}") from error
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    usual = sum(parameter.kind in positional for parameter in inspect.signature(base).parameters.values())
    for parameter in [p for p in given if p.kind in positional][usual:]:
        raise UserError(
            f"{file}: {parameter.name} must be a keyword-only argument: "
            f"def __init__(self, dims, *, {_example(parameter)})"
        )
    for parameter in (p for p in given if p.kind is inspect.Parameter.KEYWORD_ONLY):
        name, kinds = parameter.name, _choices(parameter.annotation)[0]
        if (owner := inherited_methods(cls).get(name)) is not None:
            raise UserError(f"{file}: {name} is a method of {owner}: give the argument another name")
        if parameter.annotation is parameter.empty:
            raise UserError(f"{file}: annotate {name}, for example {_example(parameter)}")
        if not all(kind in (int, float, bool, str) or typing.get_origin(kind) is typing.Literal for kind in kinds):
            raise UserError(
                f"{file}: {name} cannot be {inspect.formatannotation(parameter.annotation)}: an argument is an int, "
                f"float, bool, str or Literal, or one of these or None; for example {name}: float = 1.0"
            )
        if parameter.default is parameter.empty:
            raise UserError(f"{file}: {name} needs a default, for example {_example(parameter)}")


def _example(parameter: inspect.Parameter) -> str:
    """An example of how to write an argument, `theta: float = 1.0`, which keeps as much of it as possible."""
    kind, default = parameter.annotation, parameter.default
    if kind not in (int, float, bool, str):
        kind = type(default) if type(default) in (int, float, bool, str) else float
    if type(default) is not kind:
        default = kind(1)
    return f"{parameter.name}: {kind.__name__} = {default!r}"


def convert_arguments(cls: type, arguments: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Converts arguments to the class's types. Raises UserError on an unknown name or a value of another type."""
    known = parameters(cls)
    for name in arguments:
        if name not in known:
            raise UserError(f"{owner} has no argument '{truncate(name)}'; {did_you_mean(name, known)}")
    return {name: known[name].convert(value, owner) for name, value in arguments.items()}


class Registry(Generic[T]):
    """Classes by name. A decorator registers each where it is defined, so one file is enough for one concept."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._classes: dict[str, type[T]] = {}
        self._users: dict[str, str] = {}  # names of users' classes, by what they would be registered as

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Returns a class decorator that registers a class under `name`.

        Classes of users are not registered, since a name alone would not say which version of a class made a result:
        they are given as classes, or by their file. A class that is defined again replaces the earlier one.
        """

        def decorate(cls: type[T]) -> type[T]:
            if not cls.__module__.startswith(_PACKAGE):
                self._users[name] = cls.__name__
                return cls
            there = self._classes.get(name, cls)
            if (there.__module__, there.__qualname__) != (cls.__module__, cls.__qualname__):
                raise UserError(f"two {self.kind}s are called '{name}'")
            self._classes[name] = cls
            return cls

        return decorate

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._classes:
            if name in self._users:
                own = self._users[name]
                raise UserError(
                    f"'{name}' is your own {self.kind}: give the class itself, {own}, or its file, 'my_file.py:{own}'"
                )
            if "=" in name and ":" not in name:
                raise UserError(
                    f"'{truncate(name)}' is an argument, and no {self.kind}: in a list, parentheses keep several "
                    "arguments together, as in (name:a=1,b=2)"
                )
            raise UserError(f"unknown {self.kind} '{truncate(name)}'; {did_you_mean(name, self._classes)}")
        return self._classes[name]

    def names(self) -> list[str]:
        """All registered names, sorted."""
        return sorted(self._classes)


def import_all(package: str, folders: Iterable[str]) -> None:
    """Imports all modules in a package's folders, which registers what they define."""
    for module in pkgutil.iter_modules(folders):
        importlib.import_module(f"{package}.{module.name}")
