"""A result table with random damage: refused with one message, or read as what its columns can hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate import results
from extrapolate.errors import UserError

flips, fuzzing = settings.get_profile("flips"), settings.get_profile("fuzzing")
FIXTURE = Path(__file__).parents[1] / "fixtures/rope"
IN_FIXTURE = {"evals": results.EVALS, "eval_documents": results.EVAL_DOCUMENTS, "eval_probes": results.PROBES}
TABLES = IN_FIXTURE | {"inspections": results.INSPECTIONS}
READERS: dict[str, Callable[[Path], Any]] = {
    "evals": lambda path: results.read(path, results.EVALS),
    "eval_documents": lambda path: results.read(path, results.EVAL_DOCUMENTS),
    "eval_probes": lambda path: results.read(path, results.PROBES),
    "inspections": lambda path: results.read(path, results.INSPECTIONS),
    "metrics": results.read_frame,
}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A small file of each kind."""
    path = tmp_path_factory.mktemp("tables") / "t.parquet"
    made = {}
    for name, table in IN_FIXTURE.items():
        results.write(path, results.read(FIXTURE / f"{name}.parquet", table)[:6], table)
        made[name] = path.read_bytes()
    found = {"measurement": "removal", "quantity": "rise", "value": 0.5, "error": 0.1, "n_windows": 2}
    results.write(
        path,
        [
            {column.name: row.get(column.name) for column in results.INSPECTIONS.columns} | found | {"at": float(at)}
            for at, row in enumerate(results.read(FIXTURE / "evals.parquet", results.EVALS)[:6])
        ],
        results.INSPECTIONS,
    )
    made["inspections"] = path.read_bytes()
    results.write_frame(path, results.read_frame(FIXTURE / "metrics.parquet"))
    return made | {"metrics": path.read_bytes()}


@pytest.fixture(scope="module")
def whole(contents: dict[str, bytes], path: Path) -> dict[str, Any]:
    """What each file holds."""
    found = {}
    for name, content in contents.items():
        path.write_bytes(content)
        found[name] = READERS[name](path)
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults") / "t.parquet"


def same(one: Any, other: Any) -> bool:
    return one.equals(other) if isinstance(one, pd.DataFrame) else one == other


@pytest.mark.parametrize("name", READERS)
@flips
@given(data=st.data())
def test_a_flipped_bit_is_refused_or_changes_nothing(
    contents: dict[str, bytes], whole: dict[str, Any], path: Path, damage: Any, name: str, data: st.DataObject
) -> None:
    path.write_bytes(data.draw(damage.flipped(contents[name])))
    try:
        assert same(READERS[name](path), whole[name])
    except UserError as error:
        assert "t.parquet" in str(error)  # noqa: PT017 (both outcomes are right)


@pytest.mark.parametrize("name", READERS)
@fuzzing
@given(data=st.data())
def test_any_bytes_are_refused_or_read(
    contents: dict[str, bytes], path: Path, damage: Any, name: str, data: st.DataObject
) -> None:
    """Of a file that another program wrote, whose footer has no checksum."""
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(contents[name])), sink)
    path.write_bytes(data.draw(damage.mutated(sink.getvalue().to_pybytes())))
    check_refused_or_read(name, path)


def check_refused_or_read(name: str, path: Path) -> None:
    """Any other exception than UserError is a failure."""
    said, rows = "t.parquet", []
    try:
        rows = READERS[name](path)
    except UserError as error:
        said = str(error)
    assert "t.parquet" in said
    assert len(said) < 1000
    if name in TABLES:
        for row in rows:
            assert all(row[column.name] is not None for column in TABLES[name].columns if column.required)


@fuzzing
@given(data=st.data())
def test_metadata_that_says_anything(path: Path, data: st.DataObject) -> None:
    names = st.sampled_from(["extrapolate_format", "extrapolate_version", "pandas"])
    metadata = data.draw(st.dictionaries(names, st.binary(max_size=70), max_size=3))
    pq.write_table(pq.read_table(FIXTURE / "evals.parquet").replace_schema_metadata(metadata), path)
    check_refused_or_read("evals", path)
