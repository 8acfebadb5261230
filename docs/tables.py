"""The columns of every table and the keys of `--json`, in docs/results.md. docs/generate.py runs it."""

from collections import Counter
from collections.abc import Iterator, Sequence

from printed import PRINTED

from extrapolate.catalogue.tables import TABLES
from extrapolate.reports.sections.base import in_order
from extrapolate.results.columns import Column
from extrapolate.results.described import Described, kind


def columns() -> str:
    """A section for every table: of what runs keep with its columns, of what a report writes with their names."""
    of_reports = [one for cls in in_order() for one in cls.tables]
    lines: list[str] = []
    for one in TABLES:
        lines += named(one) if one in of_reports else section(one, f"## {one.name}", "row")
    return "\n".join(lines).rstrip()


def json_keys() -> str:
    """A section for every command that prints JSON."""
    return "\n".join(line for one in PRINTED for line in section(one, f"### JSON of {one.name}", "line")).rstrip()


def named(one: Described) -> list[str]:
    """The lines of a table's section that only names its columns."""
    names = ", ".join(f"`{name}`" for name in one.names)
    return [f"## {one.name}\n", f"{one.files}. One row per {one.row}: {names}.\n"]


def section(one: Described, heading: str, each: str) -> Iterator[str]:
    """The lines of a table's section in Markdown: its files, what there is one of `each` for, and its columns."""
    yield f"{heading}\n"
    yield f"{one.files}. One {each} per {one.row}.\n"
    for group in one.own():
        if group.name:
            yield f"**{group.name}**: {group.meaning}\n"
        yield from _listed(group.columns)
        yield ""
    if one.base is not None and (shared := one.shared()):
        whole = [group for group in one.groups if group.name and group in one.base.groups]
        rest = [c for c in shared if not any(c in group.columns for group in whole)]
        groups = [f"the groups {', '.join(f'**{group.name}**' for group in whole)}"] if whole else []
        columns = [", ".join(f"`{c.name}`" for c in rest)] if rest else []
        above = heading.replace(one.name, one.base.name).lstrip("# ")
        yield f"As in [{one.base.name}](#{above.lower().replace(' ', '-')}): {'; '.join(groups + columns)}.\n"


def _listed(columns: Sequence[Column]) -> Iterator[str]:
    """A line for each column; when several are empty is said once, below them."""
    often = [empty for empty, count in Counter(column.empty for column in columns).items() if empty and count > 2]
    for column in columns:
        unit = f", {column.unit}" if column.unit else ""
        empty = f" Empty if {column.empty}." if column.empty and column.empty not in often else ""
        yield f"- `{column.name}` ({kind(column.type)}{unit}). {column.meaning}{empty}"
    for empty in often:
        those = ", ".join(f"`{column.name}`" for column in columns if column.empty == empty)
        yield f"\n{those} are empty if {empty}."
