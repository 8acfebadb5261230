"""Turns an encoding or extension given as a class, from a module, a script or a notebook, into a file and its spec."""

import __future__

import ast
import importlib
import inspect
import linecache
import math
import symtable
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from extrapolate import specs
from extrapolate.api.same_class import difference
from extrapolate.encodings.base import Encoding, encodings
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, extensions
from extrapolate.specs import user_files

EncodingClass = type[Encoding] | partial[Encoding]
ExtensionClass = type[Extension] | partial[Extension]
_REGISTRIES: dict[type, specs.Registry[Any]] = {Encoding: encodings, Extension: extensions}
_REGISTER = {registry.register: base.__module__ for base, registry in _REGISTRIES.items()}


def spec_of(given: Any) -> Any:
    """The spec of a class, or of a class with arguments: `partial(MyClass, a=1)`. Anything else is returned as it is.

    The source of a class in a script or a notebook is written to a file, which stays until the process ends. Raises
    UserError if the class is neither an encoding nor an extension, or its source cannot be found.
    """
    if not isinstance(given, type | partial):
        return given
    cls: Any = given.func if isinstance(given, partial) else given
    if not (isinstance(cls, type) and issubclass(cls, tuple(_REGISTRIES))):
        raise UserError(
            f"{cls!r} is no encoding: give a spec, such as 'rope', or a class derived from xt.Encoding or xt.Extension"
        )
    if isinstance(given, partial) and given.args:
        raise UserError(f"give the arguments of {cls.__name__} by name: functools.partial({cls.__name__}, theta=500.0)")
    name, base = _name_of(cls), next(base for base in _REGISTRIES if issubclass(cls, base))
    if ":" in name:
        _check_source(cls, user_files.find_class(name, _REGISTRIES[base], base)[0])
    return specs.spell(name, given.keywords if isinstance(given, partial) else {})


def _check_source(given: type, loaded: type) -> None:
    """Raises UserError if the source of a class, which is what runs, gives another class."""
    if place := difference(given, loaded):
        raise UserError(
            f"the source of {given.__name__}, which a run keeps and uses, gives another class: {place} was set or "
            "changed elsewhere, or its file was edited. Define the class again, and make what varies an argument: "
            f"functools.partial({given.__name__}, theta=500.0)"
        )


def specs_of(given: Any) -> Any:
    """`spec_of` one thing, or of each of several."""
    several = isinstance(given, Iterable) and not isinstance(given, str | type)
    return [spec_of(one) for one in given] if several else spec_of(given)


def with_specs(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, with specs for the classes in `extend`."""
    return {**given, "extend": specs_of(given.get("extend"))}


@cache
def _files() -> tempfile.TemporaryDirectory[str]:
    """The folder for this process's files, which is removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="extrapolate-")


def _name_of(cls: type) -> str:
    """The registered name of a class, or a file and the name in it."""
    for base, registry in _REGISTRIES.items():
        for name in registry.names() if issubclass(cls, base) else []:
            if registry[name] is cls:
                return str(name)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if file is not None and cls.__module__ != "__main__":
        if "." in cls.__qualname__:
            raise UserError(f"{cls.__qualname__} must stand at the top of its file, {file}")
        return f"{file}:{cls.__name__}"
    path = Path(tempfile.mkdtemp(dir=_files().name)) / f"{cls.__name__}.py"
    path.write_text(_Source(cls).text(), encoding="utf-8")
    return f"{path}:{cls.__name__}"


class _Source:
    """The source of a class and of everything in its script or notebook that it needs."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.names = vars(sys.modules[cls.__module__])
        self.future = False
        self.imports: list[str] = []
        self.parts: dict[str, str] = {}
        self._add(cls.__name__, cls)

    def text(self) -> str:
        future = ["from __future__ import annotations"] if self.future else []
        return "\n".join([*future, *sorted(set(self.imports)), "", "\n\n".join(self.parts.values()), ""])

    def _add(self, name: str, value: Any) -> None:
        """Adds what a name refers to, after everything that it needs itself."""
        if isinstance(value, ModuleType):
            self.imports.append(f"import {value.__name__}{_renamed(value, name)}")
        elif type(value) in (bool, int, float, str, type(None)):
            finite = not isinstance(value, float) or math.isfinite(value)
            self.parts[name] = f"{name} = {value!r}" if finite else f'{name} = float("{value!r}")'
        elif isinstance(value, MethodType) and value in _REGISTER:  # importing it by its own name would not find it
            self.imports.append(f"from {_REGISTER[value]} import register{_renamed(value, name)}")
        elif (module := getattr(value, "__module__", None)) != self.cls.__module__ and _importable(value):
            self.imports.append(f"from {module} import {value.__qualname__}{_renamed(value, name)}")
        elif isinstance(value, type | FunctionType) and module == self.cls.__module__:
            source = self._definition(value)
            self.parts[name] = ""  # or a definition that refers to itself would not end
            for needed in _globals_of(symtable.symtable(source, name, "exec")):
                if needed in self.names and needed not in self.parts and not needed.startswith("__"):
                    self._add(needed, self.names[needed])
            del self.parts[name]
            self.parts[name] = source
        else:
            raise UserError(
                f"{self.cls.__name__} uses {name}, a {type(value).__name__}, which cannot be kept with its source: "
                "make it an argument, or put the class into a file of its own and "
                f"give 'my_file.py:{self.cls.__name__}'"
            )

    def _definition(self, value: Any) -> str:
        """The source of the definition of a function or class."""
        functions = [value] if isinstance(value, FunctionType) else vars(value).values()
        codes = [inspect.unwrap(one).__code__ for one in functions if isinstance(one, FunctionType)]
        for code in codes:
            self.future = self.future or bool(code.co_flags & __future__.annotations.compiler_flag)
            linecache.checkcache(code.co_filename)  # the file may be another than when it was last read
            lines = linecache.getlines(code.co_filename)
            for node in ast.walk(ast.parse("".join(lines))):
                if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name != value.__name__:
                    continue
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if first <= code.co_firstlineno <= (node.end_lineno or first):
                    return textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip() + "\n"
        raise UserError(
            f"the source of {value.__name__} cannot be found, and a run keeps it: put it into a file of its own and "
            f"give 'my_file.py:{self.cls.__name__}'"
        )


def _globals_of(table: symtable.SymbolTable) -> list[str]:
    """The names that a source looks up in its module."""
    top = table.get_type() == "module"
    names = [s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())]
    return list(dict.fromkeys([*names, *(name for child in table.get_children() for name in _globals_of(child))]))


def _renamed(value: Any, name: str) -> str:
    return "" if value.__name__ == name else f" as {name}"


def _importable(value: Any) -> bool:
    """Whether importing a value by its module and name gives that value."""
    try:
        return getattr(importlib.import_module(value.__module__), value.__qualname__) is value
    except (AttributeError, ImportError, TypeError, ValueError):
        return False
