"""What is known about each encoding and extension, read from the code: the lists and pages that users see."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from extrapolate import specs
from extrapolate.encodings.base import FAMILIES, Dims, build, encodings, find
from extrapolate.extensions.base import extensions

# An encoding's extensions do not depend on sizes; these are the tiny preset's.
_DIMS = Dims(width=128, heads=4, head_dim=32, seq_len=64, layers=4)


@dataclass(frozen=True)
class Argument:
    """One argument of a spec; the default as text, `auto` where it follows from the model or L."""

    name: str
    kind: str
    default: str


@dataclass(frozen=True)
class Entry:
    """One encoding: `text` is its docstring, `applies` the extensions that mean something for it."""

    name: str
    display: str
    family: str
    summary: str
    text: str
    arguments: tuple[Argument, ...]
    source: str
    caption: str
    applies: tuple[str, ...]


def describe(name: str) -> Entry:
    """The entry of an encoding, registered or `path/to/file.py:Class`. Raises ValueError where there is none."""
    cls = find(name)
    encoding = build(name, {}, _DIMS)[0]
    text = inspect.getdoc(cls) or ""
    return Entry(
        name,
        cls.display,
        cls.family,
        text.partition("\n")[0],
        text,
        tuple(arguments_of(cls)),
        getattr(cls, "source", ""),
        encoding.caption,
        tuple(n for n in extensions.names() if extensions[n].needs in encoding.accepts),
    )


def arguments_of(cls: type) -> Iterator[Argument]:
    """The arguments of an encoding or extension."""
    for parameter in specs.parameters(cls).values():
        default = "auto" if parameter.default is None else str(parameter.default)
        yield Argument(parameter.name, parameter.kind(), default.lower() if default in ("True", "False") else default)


def by_family() -> list[Entry]:
    """Every encoding, family by family, plain ones first."""
    return sorted(map(describe, encodings.names()), key=lambda entry: (FAMILIES.index(entry.family), entry.name))


def encodings_page() -> str:
    """docs/encodings.md."""
    entries = by_family()
    lines = [
        "# Encodings",
        "",
        "Made from the code by `extrapolate encodings --markdown`. L is the training length, D the width, H the heads,",
        "K the size of a head; i is a query's position, j a key's. Where nothing else is said, scores are scaled by",
        "1/sqrt(K), biases are added after that, and indices count from 0.",
        "",
        "| family | encodings |",
        "|---|---|",
    ]
    for family in FAMILIES:
        if names := [f"[`{e.name}`](#{e.name})" for e in entries if e.family == family]:
            lines.append(f"| {family} | {', '.join(names)} |")
    for entry in entries:
        lines += ["", f"## {entry.name}", "", f"**{entry.display}** · {entry.family} · {entry.source}", ""]
        lines += [*_paragraphs(entry.text), ""]
        if entry.arguments:
            lines += ["| argument | value | default |", "|---|---|---|"]
            lines += [f"| `{a.name}` | {a.kind} | `{a.default}` |" for a in entry.arguments]
            lines.append("")
        applies = ", ".join(f"`{name}`" for name in entry.applies)
        lines.append(f"Extensions that apply: {applies or 'none'}.")
    return "\n".join(lines) + "\n"


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
