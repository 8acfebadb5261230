"""What is known about each encoding and extension, read from the code: the lists and pages that users see."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from extrapolate import specs
from extrapolate.encodings.base import FAMILIES, Dims, encodings
from extrapolate.extensions.base import extensions
from extrapolate.model.layers import find, layer_encodings

# What applies to what does not depend on sizes; these are the tiny preset's.
_DIMS = Dims(width=128, heads=4, head_dim=32, seq_len=64, layers=4)


@dataclass(frozen=True)
class Argument:
    """One argument of a spec; the default as text, `auto` where it follows from the model or L."""

    name: str
    kind: str
    default: str


@dataclass(frozen=True)
class Entry:
    """One encoding or extension: `text` is its docstring, `applies` what of the other kind it can be combined with.

    `group` is an encoding's family, and what of a plan an extension changes.
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


def encoding_entry(name: str) -> Entry:
    """The entry of an encoding, registered or `path/to/file.py:Class`. Raises UserError if there is none."""
    cls = find(name)
    encoding = layer_encodings(name, {}, _DIMS)[0]
    applies = tuple(n for n in extensions.names() if extensions[n].needs in encoding.accepts)
    return _entry(name, cls, cls.family, encoding.caption, applies)


def extension_entry(name: str) -> Entry:
    """The entry of an extension. Raises UserError if there is none."""
    cls = extensions[name]
    applies = tuple(n for n in encodings.names() if cls.needs in layer_encodings(n, {}, _DIMS)[0].accepts)
    return _entry(name, cls, cls.needs, "", applies)


def _entry(name: str, cls: type, group: str, caption: str, applies: tuple[str, ...]) -> Entry:
    text = inspect.getdoc(cls) or ""
    display, source = getattr(cls, "display", name), getattr(cls, "source", "")
    summary = text.partition("\n")[0]
    return Entry(name, display, group, summary, text, tuple(arguments_of(cls)), source, caption, applies)


def arguments_of(cls: type) -> Iterator[Argument]:
    """The arguments of an encoding or extension."""
    for parameter in specs.parameters(cls).values():
        default = "auto" if parameter.default is None else str(parameter.default)
        yield Argument(parameter.name, parameter.kind(), default.lower() if default in ("True", "False") else default)


def encoding_entries() -> list[Entry]:
    """Every encoding, family by family."""
    return sorted(map(encoding_entry, encodings.names()), key=lambda e: (FAMILIES.index(e.group), e.name))


def extension_entries() -> list[Entry]:
    """Every extension, by what it changes."""
    return sorted(map(extension_entry, extensions.names()), key=lambda e: (e.group, e.name))


def encodings_page() -> str:
    """docs/encodings.md."""
    entries = encoding_entries()
    lines = [
        "# Encodings",
        "",
        "Made from the code by `extrapolate encodings --markdown`. L is the training length, D the width, H the heads,",
        "K the size of a head; i is a query's position, j a key's. Where nothing else is said, scores are scaled by",
        "1/sqrt(K), biases are added after that, and indices count from 0.",
        "",
        *contents(entries, "family", "encodings"),
    ]
    for entry in entries:
        lines += section(entry, f"{entry.display} · {entry.group} · {entry.source}")
        lines.append(
            f"Extensions that apply: {_names(entry.applies)}. [What it looks like](encodings/{entry.name}.md)."
        )
    return "\n".join(lines) + "\n"


def extensions_page() -> str:
    """docs/extensions.md."""
    entries = extension_entries()
    lines = [
        "# Extensions",
        "",
        "Made from the code by `extrapolate extensions --markdown`. An extension is applied at inference to a trained",
        "model. L is the training length, N the evaluated one; i is a query's index, j a key's, r = i - j; w_m are a",
        "rotary encoding's M frequencies, fastest first. Extensions join where they change different things, as in",
        "`yarn:factor=8 + log-n`; scales multiply. A factor left out is computed afresh for each length. For a tuned",
        "run L is the length that it was tuned at, but for the extension that belongs to it: there it is the first.",
        "",
        *contents(entries, "changes", "extensions"),
        "",
        "## What applies to what",
        "",
        "| | " + " | ".join(f"`{entry.name}`" for entry in entries) + " |",
        "|---|" + ":-:|" * len(entries),
    ]
    for encoding in encoding_entries():
        cells = ["✓" if entry.name in encoding.applies else "" for entry in entries]
        lines.append(f"| [`{encoding.name}`](encodings.md#{encoding.name}) | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Of several runs, each is evaluated with the extensions that apply to it, and the others are named with the",
        "reason. One that applies to none of them is refused. `log-n` does not apply to a model that was trained with",
        "`--ssmax`. If position enters before W_q and W_k (`expe`, `sinusoidal`, `learned`) or is made from content",
        "(`cope`, `fox`, `wall`), no pair of tokens can be presented at another distance.",
    ]
    for entry in entries:
        lines += section(entry, f"{entry.display} · changes {entry.group} · {entry.source}")
        lines.append(f"Applies to: {_names(entry.applies)}.")
    return "\n".join(lines) + "\n"


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
        lines += ["| argument | value | default |", "|---|---|---|"]
        lines += [f"| `{a.name}` | {a.kind} | `{a.default}` |" for a in entry.arguments]
        lines.append("")
    return lines


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def paragraphs(text: str) -> str:
    """A docstring with each paragraph on one line, to be folded at any width: a headed line begins a paragraph."""
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
