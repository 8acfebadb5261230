"""Reading, writing and extending tables on disk, by their declared columns.

Parquet's page checksums detect damaged values. The footer, which locates the pages of each column, has no checksum in
Parquet, so we write one just before it, where readers do not look. Files from other programs lack it; they are read if
they have the right columns.
"""

import contextlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.machine.limits import memory_limit
from extrapolate.results.columns import TEXT, Column, Table
from extrapolate.version import __version__

if TYPE_CHECKING:
    import pandas as pd

AGAIN = "delete it and evaluate again"
_MARK = b"extrapolate footer CRC-32:"  # and 4 bytes, before the footer
# Approximate bytes of memory per value: in columns that become a frame, and in rows.
IN_COLUMNS, IN_ROWS = 40, 30
FEW = 1 << 16  # rows to read without threads: Arrow aborts a process that ends while one starts, and they save nothing
MOST = 1 << 30  # bytes, for a table read as rows; one read as columns may take half the memory
_KINDS = {
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "number": (pa.types.is_integer, pa.types.is_floating),
    "time": (pa.types.is_timestamp,),
    "nothing": (pa.types.is_null,),
}


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
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, write_page_checksum=True)
    content = memoryview(sink.getvalue())
    start = _footer(content)
    files.write_bytes(path, b"".join([content[:start], _MARK, _checksum(content[start:]), content[start:]]))


def _footer(content: memoryview) -> int:
    """The offset of a Parquet file's footer: the file ends with the footer, its length, and a magic word."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def _checksum(footer: memoryview) -> bytes:
    return zlib.crc32(footer).to_bytes(4, "little")


def _check_footer(content: memoryview) -> None:
    """Raises ValueError if the footer does not match its checksum. There may be none."""
    start = _footer(content)
    place = start - len(_MARK) - 4
    if place >= 0 and content[place : start - 4] == _MARK and content[start - 4 : start] != _checksum(content[start:]):
        raise ValueError("its footer does not have the checksum it was written with")


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
        if column.pattern is not None and not re.fullmatch(column.pattern, str(value)):
            raise UserError(f"{where}: {column.name} is {value!r}, which is no plain name")


def read(path: Path, table: Table) -> list[dict[str, Any]]:
    """Reads a table's rows. A missing value is None, which differs from NaN.

    Optional columns that the file lacks are None, and columns that this version does not know are left out.
    Raises UserError if the file is damaged, in another format, or lacks a required column.
    """
    with _damage(path, AGAIN):
        return _complete(_opened(path, table, IN_ROWS), table).to_pylist()


def read_columns(path: Path, table: Table) -> pa.Table:
    """Like `read`, but as columns, with a hundredth of the time and memory for millions of rows.

    Texts are dictionary-encoded, because they repeat.
    """
    with _damage(path, AGAIN):
        data = _complete(_opened(path, table, IN_COLUMNS), table)
        data.validate(full=True)  # of texts: they are UTF-8
    for at, column in enumerate(table.columns):
        if column.type == TEXT:
            data = data.set_column(at, column.name, data.column(at).dictionary_encode())
    return data


def read_frame(path: Path) -> "pd.DataFrame":
    """Reads a table from `write_frame`: numbers, texts and times.

    Raises UserError if the file is damaged or in another format.
    """
    with _damage(path, "delete it, and make it again"):
        data = _parsed(path)
        for name, column in zip(data.column_names, data.columns, strict=True):
            if _kind(column.type) is None:
                raise ValueError(f"its column {name[:80]} holds {str(column.type)[:80]}")
        return data.to_pandas(ignore_metadata=True)


def check_grows(path: Path, table: Table) -> int:
    """The number of rows. Raises UserError if the file exists and `merge` cannot add rows to it."""
    return len(_kept(path, table))


def merge(path: Path, rows: list[dict[str, Any]], table: Table) -> None:
    """Adds rows to a table on disk, replacing those with the same key.

    Raises UserError as `read` does, and if the file has columns that this version does not know and would lose.
    """
    replaced = {tuple(row.get(name) for name in table.key) for row in rows}
    rows_there = _kept(path, table).to_pylist()
    kept = [row for row in rows_there if tuple(row[name] for name in table.key) not in replaced]
    write(path, [*kept, *rows], table)


def change(path: Path, table: Table, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Applies `change` to every row of a table on disk; None drops the row. A file without rows is deleted.

    Raises UserError as `merge` does.
    """
    if rows := [row for row in map(change, _kept(path, table).to_pylist()) if row is not None]:
        write(path, rows, table)
    else:
        path.unlink()
        files.sync(path.parent)


def merge_columns(path: Path, data: pa.Table, table: Table, replaced: Iterable[Mapping[str, Any]], run: str) -> None:
    """Like `merge`, for millions of rows of one run: adds columns, and removes rows with a key of `replaced`.

    All rows get the run's present name. A file without rows is deleted.
    """
    kept = _kept(path, table)
    for row in replaced:
        kept = kept.filter(pc.invert(_equal(kept, {name: row[name] for name in table.key if name != "run"})))
    kept = kept.set_column(kept.column_names.index("run"), "run", pa.repeat(run, len(kept)).dictionary_encode())
    if len(kept) + len(data):
        write_columns(path, pa.concat_tables([kept.cast(data.schema), data]).unify_dictionaries(), table)
    else:
        path.unlink(missing_ok=True)


def _equal(data: pa.Table, values: Mapping[str, Any]) -> pa.ChunkedArray:
    """Whether each row has these values."""
    same = pa.chunked_array([pa.repeat(True, len(data))])
    for name, value in values.items():
        same = pc.and_(same, pc.equal(data.column(name), pa.scalar(value)))
    return same


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


def _parsed(path: Path, value_bytes: int = IN_COLUMNS) -> pa.Table:
    """The content of a file. Raises UserError if it is in another format, or needs too much memory.

    Equal rows compress to almost nothing, so the size of the file says little about the memory.
    """
    content = files.read_bytes(path)
    _check_footer(memoryview(content))
    opened = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    size = opened.metadata.num_rows * opened.metadata.num_columns * value_bytes
    most = MOST if value_bytes == IN_ROWS else memory_limit() // 2
    if size > most:
        raise UserError(
            f"{path} holds {opened.metadata.num_rows:,} rows, which take about {size / 2**30:,.1f} GiB of memory, and "
            f"at most {most / 2**30:.1f} GiB are read: no evaluation writes that many; {AGAIN}"
        )
    found = (opened.metadata.metadata or {}).get(b"extrapolate_format")
    if found is not None:  # None if another program wrote the file
        files.check_format(path, int(found))
    return opened.read(use_threads=opened.metadata.num_rows > FEW)


def _opened(path: Path, table: Table, value_bytes: int) -> pa.Table:
    """A file's columns, with the table's types. Raises an error if rows or a required column are missing."""
    data = _parsed(path, value_bytes)
    if lost := [c.name for c in table.columns if c.required and c.name not in data.column_names]:
        raise UserError(f"{path} has no column {', '.join(lost)}, which every row needs: {AGAIN}")
    if not len(data):  # an evaluation always writes rows, and a frame made from none would have no columns
        raise ValueError("it holds no rows")
    for column in table.columns:
        if column.name in data.column_names:
            at = data.column_names.index(column.name)
            data = data.set_column(at, column.name, _values(data.column(at), column))
    return data


def _values(found: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """The values in the column's type. Raises ValueError if they do not fit it."""
    kind = _kind(found.type)
    if kind not in (_kind(column.type), "nothing"):
        raise ValueError(f"its column {column.name} holds {str(found.type)[:80]}")
    if column.required and found.null_count:
        raise ValueError(f"a row has no {column.name}")
    if column.pattern is not None:
        for value in found.unique().to_pylist():
            if not re.fullmatch(column.pattern, value):
                raise ValueError(f"its column {column.name} holds {value[:80]!r}, which is no plain name")
    return found.cast(column.type)


def _kind(type: pa.DataType) -> str | None:
    """The kind of values of an Arrow type; None if tables cannot have them."""
    if pa.types.is_dictionary(type):
        type = type.value_type
    for kind, tests in _KINDS.items():
        if any(test(type) for test in tests):
            return kind
    return None


def _kept(path: Path, table: Table) -> pa.Table:
    """The rows of a file, if there is one. Raises UserError if writing them again would lose a column."""
    if not path.exists():
        return table.schema().empty_table()
    with _damage(path, AGAIN):
        data = _opened(path, table, IN_ROWS)
        known = {column.name for column in table.columns}
        if unknown := [name for name in data.column_names if name not in known]:
            columns = f"{'column' if len(unknown) == 1 else 'columns'} {', '.join(unknown)[:300]}"
            raise UserError(
                f"{path} has the {columns}, which extrapolate {__version__} does not know and would lose: use the "
                "version that wrote the file, or move it elsewhere and evaluate again"
            )
        data = _complete(data, table)
        data.validate(full=True)  # of texts: they are UTF-8
        return data


def _complete(data: pa.Table, table: Table) -> pa.Table:
    """The table's columns in order; those missing in the data are empty."""
    for column in table.columns:
        if column.name not in data.column_names:
            data = data.append_column(column.name, pa.nulls(len(data), column.type))
    return data.select([c.name for c in table.columns])
