"""Reading, writing and extending tables on disk, by their declared columns.

Files have page checksums, by which Parquet detects damaged values. Those of other programs need not have them.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.results.columns import TEXT, Table
from extrapolate.version import __version__

if TYPE_CHECKING:
    import pandas as pd

AGAIN = "delete it and evaluate again"
FEW = 1 << 16  # rows to read without threads: Arrow aborts a process that ends while one starts, and they save nothing


def write(path: Path, rows: Iterable[Mapping[str, Any]], table: Table) -> None:
    """Writes rows as a Parquet file, atomically. Raises UserError if a row does not fit the table's columns."""
    rows = [dict(row) for row in rows]
    for row in rows:
        _check_row(row, table, path.name)
    try:
        data = pa.Table.from_pylist(rows, schema=table.schema())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UserError(f"{path.name}: {error}") from error
    _write(path, data)


def write_columns(path: Path, data: pa.Table, table: Table) -> None:
    """Writes columns from `read_columns` as a Parquet file, atomically."""
    _write(path, data.cast(table.schema()))


def write_frame(path: Path, frame: "pd.DataFrame") -> None:
    """Writes a frame as a Parquet file without its index, atomically."""
    _write(path, pa.Table.from_pandas(frame, preserve_index=False))


def _write(path: Path, data: pa.Table) -> None:
    said = {b"extrapolate_format": str(files.FORMAT), b"extrapolate_version": __version__}
    data = data.replace_schema_metadata((data.schema.metadata or {}) | said)
    files.write_atomically(path, lambda temporary: pq.write_table(data, temporary, write_page_checksum=True))


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
    """Reads a table's rows. A missing value is None, which differs from NaN.

    Optional columns that the file lacks are None, and columns that this version does not know are left out.
    Raises UserError if the file is damaged, in another format, or lacks a required column.
    """
    with _damage(path, AGAIN):
        return _fitted(path, _parsed(path), table).to_pylist()


def read_columns(path: Path, table: Table) -> pa.Table:
    """Like `read`, but as columns, with a hundredth of the time and memory for millions of rows.

    Texts are dictionary-encoded, because they repeat.
    """
    with _damage(path, AGAIN):
        data = _fitted(path, _parsed(path), table)
    for at, column in enumerate(table.columns):
        if column.type == TEXT:
            data = data.set_column(at, column.name, data.column(at).dictionary_encode())
    return data


def read_frame(path: Path) -> "pd.DataFrame":
    """Reads a table from `write_frame`. Raises UserError if the file is damaged or in another format."""
    with _damage(path, "delete it, and make it again"):
        return _parsed(path).to_pandas(ignore_metadata=True)


def check(path: Path, table: Table) -> None:
    """Raises UserError if the file cannot be read, or `merge` cannot add rows to it."""
    _kept(path, table)


def merge(path: Path, rows: list[dict[str, Any]], table: Table) -> None:
    """Adds rows to a table on disk, replacing those with the same key.

    Raises UserError as `read` does, and if the file has columns that this version does not know and would lose.
    """
    replaced = {tuple(row.get(name) for name in table.key) for row in rows}
    rows_there = _kept(path, table).to_pylist()
    kept = [row for row in rows_there if tuple(row[name] for name in table.key) not in replaced]
    write(path, [*kept, *rows], table)


def merge_columns(path: Path, data: pa.Table, table: Table) -> None:
    """Like `merge`, for millions of rows."""
    kept = _kept(path, table)
    for row in data.select(table.key).group_by(table.key).aggregate([]).to_pylist():
        same = pa.chunked_array([pa.repeat(True, len(kept))])
        for name, value in row.items():
            same = pc.and_(same, pc.equal(kept.column(name), pa.scalar(value)))
        kept = kept.filter(pc.invert(same))
    write_columns(path, pa.concat_tables([kept.cast(data.schema), data]).unify_dictionaries(), table)


@contextlib.contextmanager
def _damage(path: Path, again: str) -> Iterator[None]:
    """Turns an error about a damaged file into a UserError that says what to do."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {again.rpartition('and ')[2]}") from None  # nothing is there to delete
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path} is damaged: {str(error)[:300]}; {again}") from error


def _parsed(path: Path) -> pa.Table:
    """The content of a file. Raises UserError if it is in another format."""
    opened = pq.ParquetFile(pa.BufferReader(path.read_bytes()), page_checksum_verification=True)
    found = (opened.metadata.metadata or {}).get(b"extrapolate_format")
    if found is not None:  # None if another program wrote the file
        files.check_format(path, int(found))
    return opened.read(use_threads=opened.metadata.num_rows > FEW)


def _fitted(path: Path, data: pa.Table, table: Table) -> pa.Table:
    """The table's columns in order, with its types; those missing in the data are empty, unless they are required."""
    if lost := [c.name for c in table.columns if c.required and c.name not in data.column_names]:
        raise UserError(f"{path} has no column {', '.join(lost)}, which every row needs: {AGAIN}")
    for column in table.columns:
        if column.name not in data.column_names:
            data = data.append_column(column.name, pa.nulls(len(data), column.type))
    return data.select([c.name for c in table.columns]).cast(table.schema())


def _kept(path: Path, table: Table) -> pa.Table:
    """The rows of a file, if there is one. Raises UserError if writing them again would lose a column."""
    if not path.exists():
        return table.schema().empty_table()
    with _damage(path, AGAIN):
        data = _parsed(path)
        if unknown := set(data.column_names) - {column.name for column in table.columns}:
            columns = f"{'column' if len(unknown) == 1 else 'columns'} {', '.join(sorted(unknown))}"
            raise UserError(
                f"{path} has the {columns}, which extrapolate {__version__} does not know and would lose: use the "
                "version that wrote the file, or move it elsewhere and evaluate again"
            )
        return _fitted(path, data, table)
