"""The columns of every table and the keys of `--json`, in docs/results.md. docs/generate.py runs it."""

from collections.abc import Iterator

from printed import PRINTED

from extrapolate.catalogue.tables import TABLES
from extrapolate.results.columns import Column
from extrapolate.results.described import Described, kind


def columns() -> str:
    """A section for every table."""
    return "\n".join(line for one in TABLES for line in section(one, f"## {one.name}", "row")).rstrip()


def json_keys() -> str:
    """A section for every command that prints JSON."""
    return "\n".join(line for one in PRINTED for line in section(one, f"### JSON of {one.name}", "line")).rstrip()


def section(one: Described, heading: str, each: str) -> Iterator[str]:
    """The lines of a table's section in Markdown: its files, what there is one of `each` for, and its columns."""
    yield f"{heading}\n"
    yield f"{one.files}. One {each} per {one.row}.\n"
    for group in one.own():
        if group.name:
            yield f"**{group.name}**: {group.meaning}\n"
        yield from map(_line, group.columns)
        yield ""
    if one.base is not None and (shared := one.shared()):
        whole = [group for group in one.groups if group.name and group in one.base.groups]
        rest = [c for c in shared if not any(c in group.columns for group in whole)]
        groups = [f"the groups {', '.join(f'**{group.name}**' for group in whole)}"] if whole else []
        columns = [", ".join(f"`{c.name}`" for c in rest)] if rest else []
        above = heading.replace(one.name, one.base.name).lstrip("# ")
        yield f"As in [{one.base.name}](#{above.lower().replace(' ', '-')}): {'; '.join(groups + columns)}.\n"


def _line(column: Column) -> str:
    unit = f", {column.unit}" if column.unit else ""
    empty = f" Empty if {column.empty}." if column.empty else ""
    return f"- `{column.name}` ({kind(column.type)}{unit}). {column.meaning}{empty}"
