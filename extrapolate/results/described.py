"""What is said of a table beside its columns, for the list that `extrapolate columns` prints and docs/results.md."""

from dataclasses import dataclass

from extrapolate.results.tables import Column


@dataclass(frozen=True)
class Described:
    """One table: its files, what a row of it is, its columns, and the table that has the columns it does not repeat."""

    name: str
    files: str
    row: str
    columns: tuple[Column, ...]
    base: "Described | None" = None

    def own(self) -> list[Column]:
        """The columns that its base does not have."""
        shared = () if self.base is None else self.base.columns
        return [column for column in self.columns if column not in shared]

    def shared(self) -> list[Column]:
        """The columns that are as in its base."""
        return [column for column in self.columns if column not in self.own()]
