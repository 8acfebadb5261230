"""Parquet."""

from collections.abc import Iterator
from pathlib import Path

from extrapolate.data.documents import Document
from extrapolate.data.sources.fields import missing, text_of
from extrapolate.data.sources.local.base import FileKind, kinds
from extrapolate.errors import UserError


@kinds.register(".parquet")
class Parquet(FileKind):
    """Every row is a document; one column has the text."""

    @classmethod
    def documents(cls, file: Path, name: str, text_field: str) -> Iterator[Document]:
        import pyarrow as pa

        try:
            yield from _rows(file, name, text_field)
        except (MemoryError, pa.ArrowMemoryError):
            raise UserError(f"{file} has rows that are longer than memory suffices for: cut their texts") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file} is not a Parquet file, or is damaged: {error}") from error


def _rows(file: Path, name: str, text_field: str) -> Iterator[Document]:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file)
    if text_field not in table.schema_arrow.names:
        raise UserError(missing(text_field, table.schema_arrow.names, str(file)))
    number = 0
    for batch in table.iter_batches(batch_size=256, columns=[text_field]):
        for text in batch.column(0).to_pylist():
            yield Document(f"{name}:{number}", text_of({text_field: text}, text_field, f"{file}, row {number}"))
            number += 1
