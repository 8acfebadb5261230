"""What the tests of sources share: files to read, and reading them."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extrapolate.data.documents import Document
from extrapolate.data.sources import open_source


@pytest.fixture
def documents() -> Callable[..., list[Document]]:
    """All documents of a source."""
    return lambda spec, text_field="text": list(open_source(str(spec), text_field))


@pytest.fixture
def write_jsonl() -> Callable[..., Path]:
    """Writes rows as JSON Lines."""

    def write(path: Path, rows: list[object]) -> Path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def write_parquet() -> Callable[..., Path]:
    """Writes texts as a column of Parquet, beside one of numbers."""

    def write(path: Path, texts: list[object], column: str = "text", **options: object) -> Path:
        pq.write_table(pa.table({column: texts, "number": list(range(len(texts)))}), path, **options)
        return path

    return write
