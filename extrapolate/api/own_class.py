"""Turns an encoding or extension given as a class, from a module, a script or a notebook, into a file and its spec."""

import ast
import inspect
import linecache
import symtable
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding, encodings, layers_of
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, extensions
from extrapolate.model.config import ModelConfig
from extrapolate.model.llama import Decoder
from extrapolate.specs import user_files

EncodingClass = type[Encoding] | partial[Encoding]
ExtensionClass = type[Extension] | partial[Extension]
_REGISTRIES: dict[type, specs.Registry[Any]] = {Encoding: encodings, Extension: extensions}
_REGISTER = {registry.register: base.__module__ for base, registry in _REGISTRIES.items()}
_FIRST = ("from __future__ import annotations", "from math import inf, nan")  # which constants may be
_SIZES = ModelConfig.model_validate({"vocab_size": 61, "width": 32, "layers": 2, "head_dim": 16, "ff_width": 48})
_DIMS = Dims(_SIZES.width, _SIZES.heads, _SIZES.head_dim, 32, layers=_SIZES.layers, kv_heads=_SIZES.kv_heads)


def spec_of(given: Any) -> Any:
    """The spec of a class, or of a class with arguments: `partial(MyClass, a=1)`. Anything else is returned as it is.

    The source of a class in a script or a notebook is written to a file, which stays until the process ends. Raises
    UserError if the class is neither an encoding nor an extension, its source cannot be found, or that source computes
    something else than the class.
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
    arguments = given.keywords if isinstance(given, partial) else {}
    base = next(base for base in _REGISTRIES if issubclass(cls, base))
    for name in _REGISTRIES[base].names():
        if _REGISTRIES[base][name] is cls:
            return specs.spell(name, arguments)
    file = _file_of(cls)
    loaded: type = user_files.load_user_class(file, cls.__name__, base)
    if _computed(cls, arguments) != _computed(loaded, arguments):
        raise UserError(
            f"{cls.__name__} computes something else than its source, which a run keeps and uses: something was "
            "changed after it was defined, or its file was edited after the import. Put it into a file, make what "
            f"varies an argument, and give 'my_file.py:{cls.__name__}'"
        )
    return specs.spell(f"{file}:{cls.__name__}", arguments)


def specs_of(given: Any) -> Any:
    """`spec_of` one thing, or of each of several."""
    several = isinstance(given, Iterable) and not isinstance(given, str | type)
    return [spec_of(one) for one in given] if several else spec_of(given)


def with_specs(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, with specs for the classes in `extend`."""
    return {**given, "extend": specs_of(given.get("extend"))}


@torch.no_grad()
def _computed(cls: type, given: Mapping[str, Any]) -> bytes | str:
    """The logits of a small model with an encoding, or with RoPE under an extension, at L and 4 L; or its error."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        try:
            arguments = specs.convert_arguments(cls, given, cls.__name__)
            extension = cls(**arguments) if issubclass(cls, Extension) else None
            layers = layers_of(cls, arguments, _DIMS) if extension is None else layers_of(encodings["rope"], {}, _DIMS)
            model, logits = Decoder(_SIZES, layers, _DIMS.seq_len), b""
            for encoding in layers:
                for parameter in encoding.parameters():  # some begin at zero, and hide what they multiply
                    parameter.add_(0.1 * torch.randn_like(parameter))
                encoding.constrain()
            for training, factor in ((True, 1), (False, 4)):
                length = min(factor * _DIMS.seq_len, *(one.max_length or sys.maxsize for one in layers))
                plan = PLAIN if extension is None else extension.applied(layers[0], _DIMS.seq_len, length)
                logits_BTV = model.train(training)(torch.randint(_SIZES.vocab_size, (2, length)), plan)
                logits += logits_BTV.numpy().tobytes()
            return logits
        except Exception as error:  # it may need larger sizes, which it has in a run
            return f"{type(error).__name__}: {error}"


@cache
def _files() -> tempfile.TemporaryDirectory[str]:
    """The folder for this process's files, which is removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="extrapolate-")


def _file_of(cls: type) -> Path:
    """The file of a class in a module; a new one for a class of a script or a notebook."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is not None and cls.__module__ != "__main__":
        return Path(file)
    parts: dict[str, str] = {}
    _add(cls.__name__, cls, cls, parts)
    ordered = sorted(parts.values(), key=lambda text: not text.startswith(("import ", "from ")))
    path = Path(tempfile.mkdtemp(dir=_files().name)) / f"{cls.__name__}.py"
    path.write_text("\n".join([*_FIRST, *ordered, ""]), encoding="utf-8")
    return path


def _add(name: str, value: Any, cls: type, parts: dict[str, str]) -> None:
    """Adds the source of what a name of the script or notebook of `cls` refers to, after all that it needs itself."""
    module, own_name = (getattr(value, attribute, "") for attribute in ("__module__", "__qualname__"))
    renamed = f" as {name}" * (getattr(value, "__name__", name) != name)
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__}{renamed}"
    elif isinstance(value, MethodType) and value in _REGISTER:  # importing it by its own name would not find it
        parts[name] = f"from {_REGISTER[value]} import register{renamed}"
    elif isinstance(value, type | FunctionType) and module == cls.__module__ and (source := _definition(value)):
        parts[name] = ""  # or a definition that refers to itself would not end
        names = vars(sys.modules[module])
        for needed in _globals_of(symtable.symtable(source, name, "exec")):
            if needed in names and needed not in parts and not needed.startswith("__"):
                _add(needed, names[needed], cls, parts)
        del parts[name]  # to come after them
        parts[name] = f"\n\n{source}"
    elif type(value) in (bool, int, float, str, type(None)):
        parts[name] = f"{name} = {value!r}"
    elif module != cls.__module__ and getattr(sys.modules.get(module), own_name, 0) is value:
        parts[name] = f"from {module} import {own_name}{renamed}"
    else:
        raise UserError(
            f"{name}, which {cls.__name__} needs, cannot be kept with its source: make it an argument, or put the "
            f"class into a file of its own and give 'my_file.py:{cls.__name__}'"
        )


def _definition(value: Any) -> str | None:
    """The source of a function or class, in a script's file or a notebook's cell; None if it is not there."""
    for code in (getattr(inspect.unwrap(one), "__code__", None) for one in (value, *vars(value).values())):
        if code is None:
            continue
        linecache.checkcache(code.co_filename)  # it may have been edited since it was last read
        lines = linecache.getlines(code.co_filename)
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == value.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if first <= code.co_firstlineno <= (node.end_lineno or first):
                    return textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip()
    return None


def _globals_of(table: symtable.SymbolTable) -> list[str]:
    """The names that a source looks up in its module."""
    top = table.get_type() == "module"
    names = [s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())]
    return [*names, *(name for child in table.get_children() for name in _globals_of(child))]
