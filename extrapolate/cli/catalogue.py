"""extrapolate encodings, extrapolate extensions"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from extrapolate.reference import Argument, Entry


def encodings(
    name: Annotated[str | None, typer.Argument(help="show this one: its formula, arguments, source")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print the page docs/encodings.md")] = False,
) -> None:
    """List the encodings by family, or show one."""
    from extrapolate import reference

    if markdown:
        print(reference.encodings_page(), end="")
    elif name is not None:
        _show(reference.describe(name))
    else:
        entries = reference.by_family()
        rows = [(e.family, e.name, e.summary, _arguments(e.arguments), e.source) for e in entries]
        _print("Encodings", ("family", "name", "what it does", "arguments", "source"), rows)
        _say_captions([entry.caption for entry in entries])


def extensions() -> None:
    """List the extensions: name, one line, arguments with defaults, source."""
    import inspect

    from extrapolate.extensions.base import extensions as known
    from extrapolate.reference import arguments_of

    rows = []
    for name in known.names():
        cls = known[name]
        summary = (inspect.getdoc(cls) or "").partition("\n")[0]
        rows.append((name, summary, _arguments(tuple(arguments_of(cls))), cls.source))
    _print("Extensions", ("name", "what it does", "arguments", "source"), rows)


def _arguments(arguments: "tuple[Argument, ...]") -> str:
    return ", ".join(f"{a.name}={a.default}" for a in arguments)


def _show(entry: "Entry") -> None:
    from rich.markup import escape

    from extrapolate.cli.render import wide_console

    console = wide_console()
    console.print(f"[bold]{escape(entry.name)}[/] · {escape(entry.display)} · {entry.family}\n")
    console.print(escape(entry.text), highlight=False)
    console.print()
    if entry.arguments:
        rows = [(a.name, a.kind, a.default) for a in entry.arguments]
        _print("Arguments", ("name", "value", "default"), rows)
    console.print(f"Extensions that apply: {', '.join(entry.applies) or 'none'}", highlight=False)


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


def _say_captions(captions: list[str]) -> None:
    from rich.markup import escape

    from extrapolate.cli.render import wide_console

    for caption in dict.fromkeys(captions):
        if caption:
            wide_console().print(escape(caption), style="italic")
