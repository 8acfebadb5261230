"""extrapolate encodings, extrapolate extensions"""

import inspect


def encodings() -> None:
    """List the encodings: name, one line, arguments with defaults, source."""
    from extrapolate.encodings.base import encodings as known

    _print([(name, known[name]) for name in known.names()], "Encodings")


def extensions() -> None:
    """List the extensions: name, one line, arguments with defaults, source."""
    from extrapolate.extensions.base import extensions as known

    _print([(name, known[name]) for name in known.names()], "Extensions")


def _print(entries: list[tuple[str, type]], title: str) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from extrapolate.cli.render import wide_console
    from extrapolate.specs import parameters

    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("name", "what it does", "arguments", "source"):
        shown.add_column(column)
    for name, cls in entries:
        arguments = [f"{p.name}={'auto' if p.default is None else p.default}" for p in parameters(cls).values()]
        first_line = (inspect.getdoc(cls) or "").partition("\n")[0]
        shown.add_row(*map(escape, (name, first_line, "\n".join(arguments), getattr(cls, "source", ""))))
    console = wide_console()
    console.print(shown)
    for caption in (getattr(cls, "caption", "") for _, cls in entries):
        if caption:
            console.print(escape(caption), style="italic")
