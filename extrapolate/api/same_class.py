"""Compares a class in memory with the one that its source gives, which a run is trained with and keeps."""

import bisect
import builtins
import dis
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from types import CodeType, FunctionType, MemberDescriptorType, MethodType
from typing import Any

import torch
from torch import Tensor

Pairs = Iterator[tuple[str, Any, Any]]
_MISSING = object()
_NAMES = ("co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount", "co_kwonlyargcount")
# Whether Python calls `math.sqrt` as a method depends on whether `import math` was compiled along with it.
_CALLS = {"PUSH_NULL", "PRECALL", "CACHE", "EXTENDED_ARG"}
_ASIDE = re.compile(r"__annot|_abc_impl$")  # attributes of a class that do not decide what it does


def difference(given: type, loaded: type) -> str | None:
    """What `given` has otherwise than `loaded`, such as `Decay.scale`; None if both do the same.

    Compares attributes, base classes, and the code of functions with their defaults and everything that they refer to.
    What is of neither class's module is the same if it is the same object.
    """
    return _Comparison((given.__module__, loaded.__module__)).difference(given, loaded, given.__name__)


class _Comparison:
    def __init__(self, modules: tuple[str, str]) -> None:
        """modules: the two that have each its own version of everything that is compared."""
        self.modules = modules
        self.met: dict[tuple[int, int], tuple[object, object]] = {}  # kept, so that no two have one id

    def difference(self, given: Any, loaded: Any, place: str) -> str | None:
        """The first place at which two values differ, from this one on."""
        if given is loaded or (id(given), id(loaded)) in self.met:
            return None
        self.met[id(given), id(loaded)] = (given, loaded)
        pairs = self._parts(given, loaded)
        if pairs is None:
            return place
        for name, mine, other in pairs:
            if found := self.difference(mine, other, name.format(place)):
                return found
        return None

    def _parts(self, given: Any, loaded: Any) -> Pairs | None:
        """What remains to be compared: names, in which {} is that of the whole, and values; None if they differ."""
        if isinstance(given, type) and isinstance(loaded, type):
            own = (given.__module__, loaded.__module__) == self.modules
            return _of_classes(given, loaded) if own else None
        if type(given) is not type(loaded) and self.difference(type(given), type(loaded), "type"):
            return None
        if isinstance(given, FunctionType):
            return _of_functions(given, loaded)
        if isinstance(given, CodeType):
            same = all(getattr(given, name) == getattr(loaded, name) for name in _NAMES)
            if not same or _instructions(given) != _instructions(loaded):
                return None
            return iter([("{}", given.co_consts, loaded.co_consts)])
        if isinstance(given, staticmethod | classmethod | MethodType):
            functions = [(one.__func__, getattr(one, "__self__", None)) for one in (given, loaded)]
            return iter([("{}", functions[0], functions[1])])
        if isinstance(given, property):
            return iter([("{}", getattr(given, name), getattr(loaded, name)) for name in ("fget", "fset", "fdel")])
        if isinstance(given, Tensor):
            same = given.dtype == loaded.dtype and given.shape == loaded.shape and torch.equal(given, loaded)
            return iter(()) if same else None
        if isinstance(given, str | bytes | int | float | complex):
            same = repr(given) == repr(loaded)  # 0.0 is not -0.0, and NaN is NaN
            return iter(()) if same or (given, loaded) == self.modules else None  # `__name__` is used by loggers
        if isinstance(given, Mapping):
            return _by_name("{{}}", given, loaded) if list(given) == list(loaded) else None
        if isinstance(given, Sequence):
            return _by_name("{{}}", *(dict(enumerate(one)) for one in (given, loaded)))
        if isinstance(given, Set):
            return iter(()) if given == loaded else None
        return iter([("{}", _state(given), _state(loaded))])


def _state(thing: Any) -> Any:
    """What decides what an object does, as far as that can be seen: not in a lock, for example."""
    try:
        reduced = thing.__reduce_ex__(2)
    except Exception:
        return getattr(thing, "__name__", None)  # of a module
    if isinstance(reduced, str):  # pickle finds it by its name: a cached function, or one of a library
        return getattr(thing, "__wrapped__", (getattr(thing, "__module__", None), reduced))
    return reduced[1:3]


def _instructions(code: CodeType) -> list[tuple[str, Any]]:
    """What the code does, step by step; constants and the targets of jumps as indices."""
    steps = [one for one in dis.get_instructions(code) if one.opname not in _CALLS]
    offsets = [one.offset for one in steps]

    def argument(one: dis.Instruction) -> Any:
        if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            return bisect.bisect_left(offsets, one.argval)
        return one.arg if one.opcode in dis.hasconst else one.argval

    return [("LOAD_ATTR" if one.opname == "LOAD_METHOD" else one.opname, argument(one)) for one in steps]


def _of_classes(given: type, loaded: type) -> Pairs:
    for base, other in itertools.zip_longest(given.__bases__, loaded.__bases__):
        yield getattr(base, "__name__", "{}"), base, other

    def decisive(cls: type) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(cls).items()
            if not _ASIDE.match(name)
            and not isinstance(value, MemberDescriptorType)
            and (not name.startswith("__") or isinstance(value, FunctionType | staticmethod | classmethod | property))
        }

    yield from _by_name("{{}}.{}", decisive(given), decisive(loaded))


def _of_functions(given: FunctionType, loaded: FunctionType) -> Pairs:
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        yield "{}", getattr(given, name), getattr(loaded, name)
    yield from _by_name("{}", *(_enclosed(one) for one in (given, loaded)))
    yield from _by_name("{}", *(_globals(one) for one in (given, loaded)))
    yield "{}", vars(given), vars(loaded)


def _enclosed(function: FunctionType) -> dict[str, Any]:
    """The variables of enclosing functions that it uses."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    return found


def _globals(function: FunctionType) -> dict[str, Any]:
    """The names that it looks up in its module, with their values."""

    def names(code: CodeType) -> Iterator[str]:
        yield from (one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                yield from names(inner)

    known = {**vars(builtins), **function.__globals__}
    return {name: known.get(name, _MISSING) for name in names(function.__code__)}


def _by_name(named: str, given: Mapping[Any, Any], loaded: Mapping[Any, Any]) -> Pairs:
    """The values of two mappings by key. named: the names of the places, with {} for the key."""
    for key in {**given, **loaded}:
        yield named.format(key), given.get(key, _MISSING), loaded.get(key, _MISSING)
