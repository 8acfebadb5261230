"""Parquet."""

from collections.abc import Iterator

from extrapolate.data.documents import Document
from extrapolate.data.sources.base import SPLIT, missing, split_of, text_of
from extrapolate.data.sources.local.base import FileKind, LocalFile, kinds
from extrapolate.errors import UserError

# Little is read at a time, because a row may be a book, and a table of books a single row group.
_ROWS_AT_ONCE, _BUFFER_BYTES = 16, 2**20


@kinds.register(".parquet")
class Parquet(FileKind):
    """Every row is a document; one column has the text."""

    compressible = False  # the end is read first

    @classmethod
    def documents(cls, file: LocalFile, name: str, text_field: str) -> Iterator[Document]:
        import pyarrow as pa

        try:
            yield from _rows(file, name, text_field)
        except (MemoryError, pa.ArrowMemoryError):
            raise UserError(f"{file} has rows that are longer than memory suffices for: cut their texts") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file} is not a Parquet file, or is damaged: {error}") from error

    @classmethod
    def size(cls, file: LocalFile, text_field: str) -> int:
        """The column's uncompressed size; 0 if it cannot be read, as `documents` then raises the error."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            found = pq.read_metadata(file.path)
        except (pa.ArrowException, OSError):
            return 0
        columns = [found.row_group(i).column(j) for i in range(found.num_row_groups) for j in range(found.num_columns)]
        return sum(column.total_uncompressed_size for column in columns if column.path_in_schema == text_field)


def _rows(file: LocalFile, name: str, text_field: str) -> Iterator[Document]:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file.path, buffer_size=_BUFFER_BYTES)
    if text_field not in table.schema_arrow.names:
        raise UserError(missing(text_field, table.schema_arrow.names, str(file)))
    columns = [column for column in {text_field, SPLIT} if column in table.schema_arrow.names]
    batches = table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns)
    for number, row in enumerate(row for batch in batches for row in batch.to_pylist()):
        text = text_of(row, text_field, f"{file}, row {number}")
        yield Document(f"{name}:{number}", text, split_of(row, text_field))
