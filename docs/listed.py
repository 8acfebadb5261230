"""The generated parts of the pages that list encodings, extensions, data, protocols and measurements.

docs/generate.py runs it.
"""

import inspect
from collections.abc import Iterable

from extrapolate.catalogue.entries import (
    HEADED,
    Entry,
    arguments_of,
    encoding_entries,
    entry_of,
    extension_entries,
)
from extrapolate.data.probes.base import parse_probe, probes
from extrapolate.data.sources.base import form, sources
from extrapolate.data.sources.local.base import LocalFiles, kinds
from extrapolate.data.sources.synthetic import PREFIX
from extrapolate.data.synthetic.base import processes
from extrapolate.encodings.base import encodings
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.inspection.measurements.base import measurements


def encoding_contents() -> str:
    """A table of the encodings, family by family."""
    return contents(encoding_entries(), "family", "encodings")


def encoding_sections() -> str:
    """A section for every encoding."""
    lines = []
    entries = encoding_entries()
    listing: dict[tuple[str, ...], str] = {}  # the section that lists these extensions; the others link to it
    for entry in sorted(entries, key=lambda entry: entry.name != "rope"):
        listing.setdefault(tuple(entry.applies), entry.name)
    for entry in entries:
        lines += section(entry, f"{entry.display} · {entry.group}")
        home = listing[tuple(entry.applies)]
        as_there = home != entry.name and len(entry.applies) > 3
        lines += [
            f"Extensions that apply: {f'as for [`{home}`](#{home})' if as_there else in_words(entry.applies)}.",
            "",
            f"![What {entry.display} makes of positions](encodings/{entry.name}.png)",
            "",
        ]
    return joined(lines)


def extension_contents() -> str:
    """A table of the extensions, by what they change, with the encodings that they apply to."""
    entries = extension_entries()
    lines = ["| changes | extensions | in these encodings |", "|---|---|---|"]
    for group in dict.fromkeys(entry.group for entry in entries):
        members = [entry for entry in entries if entry.group == group]
        names = ", ".join(f"[`{entry.name}`](#{entry.name})" for entry in members)
        applies = members[0].applies
        everywhere = set(applies) == set(encodings.names())
        lines.append(f"| {group} | {names} | {'all' if everywhere else in_words(applies)} |")
    return joined(lines)


def extension_sections() -> str:
    """A section for every extension."""
    lines = []
    for entry in extension_entries():
        lines += section(entry, f"{entry.display} · changes {entry.group}")
    return joined(lines)


def source_sections() -> str:
    """A section for every source, with the kinds of local files."""
    lines = []
    for name in sources.names():
        lines += section(entry_of(name, sources[name], "source"), f"`{form(name)}`", "###")
    lines += section(entry_of("path", LocalFiles, "source"), "a file, a folder or a glob", "###")
    lines += ["| file | documents |", "|---|---|"]
    lines += [f"| `{suffix}` | {entry_of(suffix, kinds[suffix], '').summary} |" for suffix in kinds.names()]
    return joined(lines)


def process_sections() -> str:
    """A section for every random process with a known optimum."""
    entries = [entry_of(name, processes[name], "synthetic text") for name in processes.names()]
    return joined([line for entry in entries for line in section(entry, f"`{PREFIX}{entry.name}`", "###")])


def probe_sections() -> str:
    """A section for every probe."""
    lines = []
    for name in probes.names():
        entry, probe = entry_of(name, probes[name], "probe"), parse_probe(name)
        counted = "all answers of a window must be right" if probe.whole else "every answer counts by itself"
        each = "" if probe.chance_at(64) == probe.chance else " for each answer"
        source = "" if probe.source in entry.text else f" · {probe.source}"
        lines += section(entry, f"{counted} · chance {probe.chance:.3g}{each}{source}", "###")
    return joined(lines)


def measurement_sections() -> str:
    """A section for every measurement, with its quantities."""
    lines = []
    for name in measurements.names():
        cls = measurements[name]
        lines += [f"### {name}", "", inspect.cleandoc(cls.__doc__ or ""), ""]
        for quantity, (unit, meaning) in cls.quantities.items():
            lines.append(f"- `{quantity}`{f' ({unit})' if unit else ''}. {meaning}")
        at = f"`at` is {cls.at}.\n" if cls.at else ""
        lines += ["", f"{at}Source: {cls.source}.", ""]
    return joined(lines)


def protocol_rows() -> str:
    """A row for each protocol: its description, arguments, most targets, whether a report has its loss by position."""
    lines = ["| protocol | what it does | arguments | targets, at most | loss by position |", "|---|---|---|---|---|"]
    for name in protocols.names():
        cls = protocols[name]
        does = (inspect.getdoc(cls) or "").partition("\n")[0]
        arguments = ", ".join(f"`{a.name}={a.default}`" for a in arguments_of(cls))
        shown = "yes" if cls.positions else "no"
        lines.append(f"| [`{name}`](protocol-{name}.svg) | {does} | {arguments} | {cls.max_targets:,} | {shown} |")
    return joined(lines)


def contents(entries: list[Entry], group: str, what: str) -> str:
    """A table of Markdown that names every entry and links to its section, a row a group."""
    lines = [f"| {group} | {what} |", "|---|---|"]
    for name in dict.fromkeys(entry.group for entry in entries):
        members = [f"[`{e.name}`](#{e.name})" for e in entries if e.group == name]
        lines.append(f"| {name} | {', '.join(members)} |")
    return joined(lines)


def section(entry: Entry, heading: str, level: str = "##") -> list[str]:
    """The lines of an entry's section in Markdown: its name, the heading in bold, its text and its arguments."""
    lines = [f"{level} {entry.name}", "", f"**{heading}**", "", *_paragraphs(entry.text), ""]
    if entry.arguments:
        defaults = ", ".join(f"{a.name}={a.default}" for a in entry.arguments)
        lines += [f"**Defaults:** `{defaults}`", ""]
    return lines


def in_words(names: Iterable[str]) -> str:
    """The names as code, with commas; `none` if there are none."""
    return ", ".join(f"`{name}`" for name in names) or "none"


def joined(lines: list[str]) -> str:
    """The lines without an empty one at the end."""
    return "\n".join(lines).rstrip()


def _paragraphs(text: str) -> list[str]:
    """A docstring as Markdown: its headed lines become paragraphs that begin in bold."""
    lines: list[str] = []
    for line in text.splitlines():
        if head := next((head for head in HEADED if line.startswith(head)), None):
            lines += ["", f"**{head}**{line.removeprefix(head)}"]
        else:
            lines.append(line)
    return [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]
