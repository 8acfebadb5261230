"""The entries of everything that a spec can name, read from the code, for the lists and pages that users see."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from extrapolate import specs


@dataclass(frozen=True)
class Argument:
    """One argument of a spec; the default as text, `auto` if it follows from the model or L."""

    name: str
    kind: str
    default: str


@dataclass(frozen=True)
class Entry:
    """One thing that users name in a spec: `text` is its docstring.

    `group` is an encoding's family, or what an extension changes; `applies` lists the extensions or encodings that it
    can be combined with.
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


def contents(entries: list[Entry], group: str, what: str) -> list[str]:
    """A table of Markdown that names every entry and links to its section, a row a group."""
    lines = [f"| {group} | {what} |", "|---|---|"]
    for name in dict.fromkeys(entry.group for entry in entries):
        members = [f"[`{e.name}`](#{e.name})" for e in entries if e.group == name]
        lines.append(f"| {name} | {', '.join(members)} |")
    return lines


def section(entry: Entry, heading: str) -> list[str]:
    """The lines of an entry's section in Markdown: its name, the heading in bold, its text and its arguments."""
    lines = ["", f"## {entry.name}", "", f"**{heading}**", "", *_paragraphs(entry.text), ""]
    if entry.arguments:
        defaults = ", ".join(f"{a.name}={a.default}" for a in entry.arguments)
        lines += [f"**Defaults:** `{defaults}`", ""]
    return lines


def in_words(names: Iterable[str]) -> str:
    """The names as code, with commas; `none` if there are none."""
    return ", ".join(f"`{name}`" for name in names) or "none"


def paragraphs(text: str) -> str:
    """A docstring with each paragraph on one line, to be wrapped at any width; a headed line begins a paragraph."""
    lines: list[str] = [""]
    for line in text.splitlines():
        if lines[-1] and line and not line.startswith((*_HEADED, " ", "-")):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(lines[1:])


_HEADED = ("Beyond L:", "Arguments:", "Source:", "Sources:", "Our reading:")


def _paragraphs(text: str) -> list[str]:
    """A docstring as Markdown: its headed lines become paragraphs that begin in bold."""
    lines: list[str] = []
    for line in text.splitlines():
        if head := next((head for head in _HEADED if line.startswith(head)), None):
            lines += ["", f"**{head}**{line.removeprefix(head)}"]
        else:
            lines.append(line)
    return [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]
