"""The entries of `extrapolate encodings` and `extensions`, read from docstrings and signatures."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from extrapolate import specs
from extrapolate.encodings.base import FAMILIES, Dims, Encoding, encodings, layers_of
from extrapolate.extensions.base import extensions
from extrapolate.model.model import find, layer_encodings

# The tiny preset's sizes; which extensions apply does not depend on them.
DIMS = Dims(width=128, heads=4, head_dim=32, seq_len=64, layers=4)
# Beginnings of paragraphs in docstrings.
HEADED = ("Beyond L:", "Arguments:", "Source:", "Sources:", "Our reading:")


@dataclass(frozen=True)
class Argument:
    """One argument of a spec, with its default as text: `auto` if it depends on the model or L."""

    name: str
    kind: str
    default: str


@dataclass(frozen=True)
class Entry:
    """An encoding or extension; `text` is its docstring.

    `group` is an encoding's family, or the part of a plan that an extension changes. `applies`: the extensions that an
    encoding can be combined with, or the encodings for an extension.
    """

    name: str
    display: str
    group: str
    summary: str
    text: str
    arguments: tuple[Argument, ...]
    source: str
    caption: str
    applies: tuple[str, ...]


def entry_of(name: str, cls: type, group: str, caption: str = "", applies: Iterable[str] = ()) -> Entry:
    """The entry of a class, from its docstring and attributes."""
    text = inspect.getdoc(cls) or ""
    display, source = getattr(cls, "display", name), getattr(cls, "source", "")
    summary = text.partition("\n")[0]
    return Entry(name, display, group, summary, text, tuple(arguments_of(cls)), source, caption, tuple(applies))


def arguments_of(cls: type) -> Iterator[Argument]:
    """The arguments of an encoding or extension."""
    for parameter in specs.parameters(cls).values():
        default = "auto" if parameter.default is None else str(parameter.default)
        yield Argument(parameter.name, parameter.kind(), default.lower() if default in ("True", "False") else default)


def encoding_entry(name: str) -> Entry:
    """The entry of an encoding, registered or `path/to/file.py:Class`. Raises UserError if it is unknown."""
    cls = find(name)
    layers = _layers(name)
    applies = tuple(n for n in extensions.names() if extensions[n]().refusal(layers) is None)
    return entry_of(name, cls, cls.family, layers[0].caption, applies)


@cache
def _layers(name: str) -> list[Encoding]:
    """The layers of an encoding. A registered one is known to fit, and counting its bytes would take seconds."""
    return layers_of(encodings[name], {}, DIMS) if name in encodings.names() else layer_encodings(name, {}, DIMS)


def encoding_entries() -> list[Entry]:
    """All encodings, by family."""
    return sorted(map(encoding_entry, encodings.names()), key=lambda e: (FAMILIES.index(e.group), e.name))


def extension_entry(name: str) -> Entry:
    """The entry of an extension. Raises UserError if it is unknown."""
    cls = extensions[name]
    applies = tuple(n for n in encodings.names() if cls().refusal(_layers(n)) is None)
    return entry_of(name, cls, cls.needs, "", applies)


def extension_entries() -> list[Entry]:
    """All extensions, by what they change."""
    return sorted(map(extension_entry, extensions.names()), key=lambda e: (e.group, e.name))


def paragraphs(text: str) -> str:
    """A docstring with each paragraph on one line, for folding at any width. A line with a heading starts one."""
    lines: list[str] = [""]
    for line in text.splitlines():
        if lines[-1] and line and not line.startswith((*HEADED, " ", "-")):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(lines[1:])
