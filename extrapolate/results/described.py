"""Descriptions of tables, for `extrapolate columns` and docs/results.md."""

from dataclasses import dataclass, replace

import pyarrow as pa

from extrapolate.results.columns import Column, Group


@dataclass(frozen=True)
class Described:
    """One table: its files, its groups of columns, and a base table whose columns it does not repeat.

    `row` completes "one row per ...". A table with few columns has a single unnamed group: see `plain`.
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

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def own(self) -> list[Group]:
        """The groups, without the columns of the base, and without groups that are then empty."""
        theirs = [] if self.base is None else [replace(column, type=None) for column in self.base.columns]
        left = [
            replace(group, columns=tuple(c for c in group.columns if replace(c, type=None) not in theirs))
            for group in self.groups
        ]
        return [group for group in left if group.columns]

    def shared(self) -> list[Column]:
        """The columns that are the same as in the base."""
        own = [column for group in self.own() for column in group.columns]
        return [column for column in self.columns if column not in own]


def plain(*columns: Column) -> tuple[Group, ...]:
    """A single unnamed group, for a table with few columns."""
    return (Group("", "", columns),)


def kind(type: pa.DataType) -> str:
    """An Arrow type in words."""
    if pa.types.is_dictionary(type):
        type = type.value_type
    if pa.types.is_list(type):
        inside = type.value_type
        return "list of objects" if pa.types.is_struct(inside) else f"list of {kind(inside)}s"
    for test, text in (
        (pa.types.is_string, "text"),
        (pa.types.is_integer, "whole number"),
        (pa.types.is_floating, "number"),
        (pa.types.is_boolean, "true or false"),
    ):
        if test(type):
            return text
    return "time"
