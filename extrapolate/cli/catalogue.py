"""extrapolate encodings, extrapolate extensions"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from extrapolate.reference import Entry

Markdown = Annotated[bool, typer.Option("--markdown", help="print the page of docs/ that has them all")]


def encodings(
    name: Annotated[str | None, typer.Argument(help="show this one: its formula, arguments, source")] = None,
    markdown: Markdown = False,
) -> None:
    """List the encodings by family, or show one."""
    from extrapolate import reference

    if markdown:
        print(reference.encodings_page(), end="")
    elif name is not None:
        _show(reference.encoding_entry(name), "Extensions that apply")
    else:
        _list("Encodings", "family", reference.encoding_entries())


def extensions(
    name: Annotated[str | None, typer.Argument(help="show this one: its formula, arguments, source")] = None,
    markdown: Markdown = False,
) -> None:
    """List the extensions by what they change, or show one."""
    from extrapolate import reference

    if markdown:
        print(reference.extensions_page(), end="")
    elif name is not None:
        _show(reference.extension_entry(name), "Applies to")
    else:
        _list("Extensions", "changes", reference.extension_entries())


def _list(title: str, group: str, entries: "list[Entry]") -> None:
    from rich.markup import escape

    from extrapolate.cli.render import wide_console

    rows = [
        (e.group, e.name, e.summary, ", ".join(f"{a.name}={a.default}" for a in e.arguments), e.source) for e in entries
    ]
    _print(title, (group, "name", "what it does", "arguments", "source"), rows)
    for caption in dict.fromkeys(entry.caption for entry in entries if entry.caption):
        wide_console().print(escape(caption), style="italic")


def _show(entry: "Entry", applies: str) -> None:
    from rich.markup import escape

    from extrapolate.cli.render import wide_console

    console = wide_console()
    console.print(f"[bold]{escape(entry.name)}[/] · {escape(entry.display)} · {entry.group}\n")
    console.print(escape(entry.text), highlight=False)
    console.print()
    if entry.arguments:
        rows = [(a.name, a.kind, a.default) for a in entry.arguments]
        _print("Arguments", ("name", "value", "default"), rows)
    console.print(f"{applies}: {', '.join(entry.applies) or 'none'}", highlight=False)


def _print(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from extrapolate.cli.render import wide_console

    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        shown.add_column(column, no_wrap=column not in ("arguments", "source"))
    for row in rows:
        shown.add_row(*map(escape, row))
    wide_console().print(shown)
