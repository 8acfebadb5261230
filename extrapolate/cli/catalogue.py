"""extrapolate encodings, extrapolate extensions, extrapolate columns"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extrapolate.cli.flags import AsJson
from extrapolate.errors import UserError

if TYPE_CHECKING:
    from extrapolate.catalogue.entries import Entry


def encodings(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="only these: formula, arguments, source; with --plot also a run's folder, rope:theta=500"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="draw what those named look like, side by side, into this .png, .svg or .pdf")
    ] = None,
    extend: Annotated[str | None, typer.Option(help="with --plot: draw scores before and after this extension")] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="with --plot: run Python files that came with runs; read them first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the encodings by family, or show or draw some."""
    from extrapolate.catalogue.entries import encoding_entries, encoding_entry

    if plot is not None:
        if as_json:
            raise UserError("give one of --plot and --json")
        from extrapolate.api.plot_encodings import plot_encodings
        from extrapolate.terminal import say

        plot_encodings(names or [], plot, extend=extend, trust_code=trust_code)
        say(f"wrote {plot}")
        return
    for flag, given in {"--extend": extend, "--trust-code": trust_code or None}.items():
        if given is not None:
            raise UserError(f"{flag} needs --plot FILE")
    entries = list(map(encoding_entry, names)) if names else encoding_entries()
    _print(entries, as_json, ("Encodings", "family"), "Extensions that apply" if names else None)


def extensions(
    names: Annotated[list[str] | None, typer.Argument(help="only these: formula, arguments, source")] = None,
    as_json: AsJson = False,
) -> None:
    """List the extensions by what they change, or show some."""
    from extrapolate.catalogue.entries import extension_entries, extension_entry

    entries = list(map(extension_entry, names)) if names else extension_entries()
    _print(entries, as_json, ("Extensions", "changes"), "Applies to" if names else None)


def columns(
    table: Annotated[str | None, typer.Argument(help="show only this table: evals, metrics, loss_by_ev")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what each column of each table means."""
    from extrapolate.catalogue import tables as results
    from extrapolate.cli.render import Column, Kind, print_columns, print_json, print_text

    tables = results.TABLES if table is None else (results.table(table),)
    if as_json:
        print_json(row for one in tables for row in results.rows(one))
        return
    for one in tables:
        heading = f"{one.name}: {one.files.replace('`', '')}. One row per {one.row}"
        if one.groups[0].name:
            print_text(heading)
        for group in one.own() if table is None else one.groups:
            found = [
                Column("column", [c.name for c in group.columns], Kind.NAME),
                Column("unit", [c.unit for c in group.columns]),
                Column("meaning", [c.meaning for c in group.columns]),
                Column("empty if", [c.empty for c in group.columns]),
            ]
            title = f"{one.name}, {group.name}: {group.meaning}" if group.name else heading
            print_columns([column for column in found if any(column.cells)], title)
        if table is None and one.base is not None and one.shared():
            print_text(f"And as in {one.base.name}: {', '.join(c.name for c in one.shared())}\n\n")


def _print(entries: "list[Entry]", as_json: bool, listed: tuple[str, str], applies: str | None) -> None:
    """Prints entries as JSON or as a list; or in full if `applies` is given, the words before what each applies to."""
    from extrapolate.catalogue.entries import paragraphs
    from extrapolate.cli.render import Column, Kind, print_columns, print_json, print_text

    if as_json:
        print_json(map(asdict, entries))
        return
    if applies is None:
        title, group = listed
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
        return
    for at, entry in enumerate(entries):
        above = "\n\n" if at else ""
        print_text(f"{above}{entry.name} · {entry.display} · {entry.group}\n\n{paragraphs(entry.text)}\n\n")
        if entry.arguments:
            columns = [
                Column("name", [a.name for a in entry.arguments], Kind.NAME),
                Column("value", [a.kind for a in entry.arguments]),
                Column("default", [a.default for a in entry.arguments]),
            ]
            print_columns(columns, "Arguments")
        print_text(f"{applies}: {', '.join(entry.applies) or 'none'}")
