"""Tables on disk: written by their declared columns, read back from any version up to this one, and grown."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.results.columns import Table
from extrapolate.results.formats import FORMAT, format_of, stamp, translated, version_of
from extrapolate.version import unknown_here

if TYPE_CHECKING:
    import pandas as pd


def write(path: Path, rows: Iterable[Mapping[str, Any]], table: Table) -> None:
    """Writes rows as a Parquet file, atomically. Raises UserError where a row does not fit the table's columns."""
    rows = [dict(row) for row in rows]
    for row in rows:
        _check_row(row, table, path.name)
    try:
        data = pa.Table.from_pylist(rows, schema=table.schema())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UserError(f"{path.name}: {error}") from error
    _write(path, data)


def write_frame(path: Path, frame: "pd.DataFrame") -> None:
    """Writes a frame as a Parquet file without its index, atomically."""
    _write(path, pa.Table.from_pandas(frame, preserve_index=False))


def read_frame(path: Path) -> "pd.DataFrame":
    """Reads what `write_frame` wrote. Raises UserError where the file is damaged."""
    try:
        return pq.read_table(path).to_pandas()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _write(path: Path, data: pa.Table) -> None:
    stamped = data.replace_schema_metadata((data.schema.metadata or {}) | stamp())
    files.write_atomically(path, lambda temporary: pq.write_table(stamped, temporary))


def _check_row(row: Mapping[str, Any], table: Table, where: str) -> None:
    known = {column.name for column in table.columns}
    if unknown := sorted(set(row) - known):
        raise UserError(f"{where}: there is no column {', '.join(unknown)}")
    for column in table.columns:
        value = row.get(column.name)
        if column.required and value is None:
            raise UserError(f"{where}: a row has no {column.name}")
        if pa.types.is_integer(column.type) and isinstance(value, float) and not value.is_integer():
            raise UserError(f"{where}: {column.name} is {value}, not a whole number")


def read(path: Path, table: Table) -> list[dict[str, Any]]:
    """Reads a table's rows; None where there is no value, which is not the same as NaN.

    An optional column that the file lacks reads as None, and columns that this version does not know are left out.
    Raises UserError where the file is damaged, of a newer format, or lacks a required column.
    """
    return _rows(_opened(path, table), table)


def check_grows(path: Path, table: Table) -> None:
    """Raises UserError where there is a file that `merge` cannot add rows to."""
    _kept(path, table)


def merge(path: Path, rows: list[dict[str, Any]], table: Table, run: str | None = None) -> None:
    """Adds rows to a table on disk; those with the key of a new row are replaced.

    With `run`, the table is that run's own: rows under another name, from before its folder was renamed, go.
    Raises UserError as `read` does, and where the file has columns that this version does not know and would lose.
    """
    replaced = {tuple(row.get(name) for name in table.key) for row in rows}
    kept = [row for row in _kept(path, table) if tuple(row[name] for name in table.key) not in replaced]
    if run is not None:
        kept = [row for row in kept if row["run"] == run]
    write(path, [*kept, *rows], table)


def _opened(path: Path, table: Table) -> pa.Table:
    """A file's columns in today's words; the schema still says which version wrote them."""
    try:
        data = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is damaged: {error}; delete it and evaluate again") from error
    version = version_of(data.schema)
    if (number := format_of(data.schema)) > FORMAT:
        raise unknown_here(path, version, f"in format {number}")
    today = translated(data, table)
    if lost := [c.name for c in table.columns if c.required and c.name not in today.column_names]:
        raise UserError(
            f"{path} was written by extrapolate {version} and has no column {', '.join(lost)}, which every row needs: "
            "delete it and evaluate again"
        )
    return today.replace_schema_metadata(data.schema.metadata)


def _kept(path: Path, table: Table) -> list[dict[str, Any]]:
    """The rows of a file, none where there is no file; refused where writing them again would lose something."""
    if not path.exists():
        return []
    data = _opened(path, table)
    known = {column.name for column in table.columns}
    if unknown := [name for name in data.column_names if name not in known]:
        columns = f"{'column' if len(unknown) == 1 else 'columns'} {', '.join(unknown)}"
        raise unknown_here(path, version_of(data.schema), f"with the {columns}")
    return _rows(data, table)


def _rows(data: pa.Table, table: Table) -> list[dict[str, Any]]:
    for column in table.columns:
        if column.name not in data.column_names:
            data = data.append_column(column.name, pa.nulls(len(data), column.type))
    return data.select([c.name for c in table.columns]).to_pylist()
