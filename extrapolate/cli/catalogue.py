"""extrapolate encodings, extrapolate extensions, extrapolate columns"""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from extrapolate.catalogue import Entry

Markdown = Annotated[bool, typer.Option("--markdown", help="print all, as the page of docs/")]


def encodings(
    name: Annotated[str | None, typer.Argument(help="show only this one: formula, arguments, source")] = None,
    markdown: Markdown = False,
) -> None:
    """List the encodings by family, or one."""
    from extrapolate import catalogue

    if markdown:
        print(catalogue.encodings_page(), end="")
    elif name is not None:
        _show(catalogue.encoding_entry(name), "Extensions that apply")
    else:
        _list("Encodings", "family", catalogue.encoding_entries())


def extensions(
    name: Annotated[str | None, typer.Argument(help="show only this one: formula, arguments, source")] = None,
    markdown: Markdown = False,
) -> None:
    """List the extensions by what they change, or one."""
    from extrapolate import catalogue

    if markdown:
        print(catalogue.extensions_page(), end="")
    elif name is not None:
        _show(catalogue.extension_entry(name), "Applies to")
    else:
        _list("Extensions", "changes", catalogue.extension_entries())


def columns(
    table: Annotated[str | None, typer.Argument(help="show only this table: evals, metrics, loss_by_ev")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print all, as docs/results.md")] = False,
) -> None:
    """Say what each column of each table means."""
    from extrapolate.cli.render import Column, Kind, print_columns, print_text
    from extrapolate.results import page as results_page

    if markdown:
        print(results_page.results_page(), end="")
        return
    for one in results_page.TABLES if table is None else [results_page.table(table)]:
        heading = f"{one.name}: {one.files.replace('`', '')}. One row stands for {one.row}"
        if one.groups[0].name:
            print_text(heading)
        for group in one.own() if table is None else one.groups:
            found = [
                Column("column", [c.name for c in group.columns], Kind.NAME),
                Column("unit", [c.unit for c in group.columns]),
                Column("what it holds", [c.meaning for c in group.columns]),
                Column("empty where", [c.empty for c in group.columns]),
            ]
            title = f"{one.name}, {group.name}: {group.meaning}" if group.name else heading
            print_columns([column for column in found if any(column.cells)], title)
        if table is None and one.base is not None and one.shared():
            print_text(f"And as in {one.base.name}: {', '.join(c.name for c in one.shared())}\n\n")


def _list(title: str, group: str, entries: "list[Entry]") -> None:
    from extrapolate.cli.render import Column, Kind, print_columns, print_text

    columns = [
        Column(group, [e.group for e in entries]),
        Column("name", [e.name for e in entries], Kind.NAME),
        Column("what it does", [e.summary for e in entries]),
        Column("arguments", [", ".join(f"{a.name}={a.default}" for a in e.arguments) for e in entries]),
        Column("source", [e.source for e in entries]),
    ]
    print_columns(columns, title)
    for caption in dict.fromkeys(entry.caption for entry in entries if entry.caption):
        print_text(caption)


def _show(entry: "Entry", applies: str) -> None:
    from extrapolate.catalogue import paragraphs
    from extrapolate.cli.render import Column, Kind, print_columns, print_text

    print_text(f"{entry.name} · {entry.display} · {entry.group}\n\n{paragraphs(entry.text)}\n\n")
    if entry.arguments:
        columns = [
            Column("name", [a.name for a in entry.arguments], Kind.NAME),
            Column("value", [a.kind for a in entry.arguments]),
            Column("default", [a.default for a in entry.arguments]),
        ]
        print_columns(columns, "Arguments")
    print_text(f"{applies}: {', '.join(entry.applies) or 'none'}")
