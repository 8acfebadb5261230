"""Columns, groups of columns, and tables."""

from dataclasses import dataclass

import pyarrow as pa

TEXT, INT, REAL = pa.string(), pa.int64(), pa.float64()
LABEL = pa.dictionary(pa.int32(), TEXT)  # for few distinct texts in millions of rows


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, its unit (or an empty string), and whether every row must have a value.

    `meaning` is a sentence that describes it; `empty` completes "empty if ..." for a column that is not required.
    """

    name: str
    type: pa.DataType
    unit: str = ""
    required: bool = True
    meaning: str = ""
    empty: str = ""


def always(name: str, type: pa.DataType, unit: str, meaning: str) -> Column:
    """A column in which every row has a value."""
    return Column(name, type, unit, meaning=meaning)


def sometimes(name: str, type: pa.DataType, unit: str, meaning: str, empty: str) -> Column:
    """A column that may be empty, and is empty in every row of a file that lacks it."""
    return Column(name, type, unit, required=False, meaning=meaning, empty=empty)


@dataclass(frozen=True)
class Group:
    """Columns that belong together; `meaning` describes them in a few words."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Table:
    """A table's columns in groups, and its key: rows replace all older ones of a run with the same key.

    by: the column that names what was asked. folder: where a run keeps the rows, see `results.kept`.
    """

    groups: tuple[Group, ...]
    key: tuple[str, ...]
    by: str = ""
    folder: str = ""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        twice = {name for name in names if names.count(name) > 1}
        assert not twice, f"two columns are called {', '.join(sorted(twice))}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of all groups, in order."""
        return tuple(column for group in self.groups for column in group.columns)

    def schema(self) -> pa.Schema:
        """The Arrow schema; units and meanings are in the fields' metadata."""
        return pa.schema(
            [
                pa.field(c.name, c.type, nullable=not c.required, metadata={"unit": c.unit, "meaning": c.meaning})
                for c in self.columns
            ]
        )
