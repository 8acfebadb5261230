"""The description of a table, for the list that `extrapolate columns` prints and docs/results.md."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from extrapolate.results.columns import Column, Group


@dataclass(frozen=True)
class Described:
    """One table: its files, its groups of columns, and the table whose columns it does not repeat.

    `row` completes "one row per ...", as in "protocol and length". A table of few columns has one group,
    without a name: see `plain`.
    """

    name: str
    files: str
    row: str
    groups: tuple[Group, ...]
    base: "Described | None" = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of all groups."""
        return tuple(column for group in self.groups for column in group.columns)

    def own(self) -> list[Group]:
        """The groups without the columns that are as in the base; groups that would be empty are left out."""
        said = [] if self.base is None else [vars(column) | {"type": None} for column in self.base.columns]
        left = [
            replace(group, columns=tuple(c for c in group.columns if vars(c) | {"type": None} not in said))
            for group in self.groups
        ]
        return [group for group in left if group.columns]

    def shared(self) -> list[Column]:
        """The columns that are as in the base."""
        own = [column for group in self.own() for column in group.columns]
        return [column for column in self.columns if column not in own]


def plain(*columns: Column) -> tuple[Group, ...]:
    """The groups of a table of few columns: one, without a name."""
    return (Group("", "", columns),)


def kind(column: Column) -> str:
    """A column's type in words."""
    return _kind(column.type)


def _kind(type: pa.DataType) -> str:
    if pa.types.is_dictionary(type):
        type = type.value_type
    if pa.types.is_list(type):
        inside = type.value_type
        return "list of objects" if pa.types.is_struct(inside) else f"list of {_kind(inside)}s"
    for test, text in (
        (pa.types.is_string, "text"),
        (pa.types.is_integer, "whole number"),
        (pa.types.is_floating, "number"),
        (pa.types.is_boolean, "true or false"),
    ):
        if test(type):
            return text
    return "time"


def section(one: Described, heading: str, each: str) -> Iterator[str]:
    """The lines of a table's section in Markdown: its files, what each row (or line) stands for, and its columns."""
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
    return f"- `{column.name}` ({kind(column)}{unit}). {column.meaning}{empty}"
