"""A command with so many options that its help shows them in sections."""

from typing import Any

from typer.core import TyperCommand


class Sections(TyperCommand):
    """Its help has a section for each `rich_help_panel` of its options, in their order, and `Options` for the rest.

    Arguments have a section of their own.

    Typer does this itself only together with Rich, whose boxes double the time that --help takes.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if option.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(option, "rich_help_panel", None) or usual, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
