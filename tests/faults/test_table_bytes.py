"""A result table with random damage: refused with one message, or read as what its columns can hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.results import seal

flips, fuzzing = settings.get_profile("flips"), settings.get_profile("fuzzing")
FIRST = Path(__file__).parents[1] / "fixtures/rope"
OLD_TABLES = {"evals": results.EVALS, "eval_documents": results.EVAL_DOCUMENTS, "eval_probes": results.PROBES}
TABLES = OLD_TABLES | {"inspections": results.INSPECTIONS}  # which the first format did not have
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
    for name, table in OLD_TABLES.items():
        results.write(path, results.read(FIRST / f"{name}.parquet", table)[:6], table)
        made[name] = path.read_bytes()
    found = {"measurement": "removal", "quantity": "rise", "value": 0.5, "error": 0.1, "n_windows": 2}
    results.write(
        path,
        [
            {column.name: row.get(column.name) for column in results.INSPECTIONS.columns} | found | {"at": float(at)}
            for at, row in enumerate(results.read(FIRST / "evals.parquet", results.EVALS)[:6])
        ],
        results.INSPECTIONS,
    )
    made["inspections"] = path.read_bytes()
    results.write_frame(path, results.read_frame(FIRST / "metrics.parquet"))
    return made | {"metrics": path.read_bytes()}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults") / "t.parquet"


@pytest.mark.parametrize("name", READERS)
@flips
@given(data=st.data())
def test_every_flipped_bit_is_refused(
    contents: dict[str, bytes], path: Path, damage: Any, name: str, data: st.DataObject
) -> None:
    path.write_bytes(data.draw(damage.flipped(contents[name])))
    with pytest.raises(UserError, match=r"t\.parquet is damaged"):
        READERS[name](path)


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


@pytest.mark.parametrize("name", READERS)
@fuzzing
@given(data=st.data())
def test_any_bytes_that_have_their_hash(
    contents: dict[str, bytes], path: Path, damage: Any, name: str, data: st.DataObject
) -> None:
    content = bytearray(data.draw(damage.mutated(contents[name])))
    if (place := seal._place(content)) is not None:
        content[place : place + 64] = seal._hash(content, place)
    path.write_bytes(content)
    check_refused_or_read(name, path)


@pytest.mark.parametrize("name", [*OLD_TABLES, "metrics"])
@fuzzing
@given(data=st.data())
def test_any_bytes_of_a_format_without_a_hash(path: Path, damage: Any, name: str, data: st.DataObject) -> None:
    path.write_bytes(data.draw(damage.mutated((FIRST / f"{name}.parquet").read_bytes())))
    check_refused_or_read(name, path)


@fuzzing
@given(data=st.data())
def test_metadata_that_says_anything(path: Path, data: st.DataObject) -> None:
    names = st.sampled_from([f"extrapolate_{name}" for name in ("format", "version", "sha256")] + ["pandas"])
    metadata = data.draw(st.dictionaries(names, st.binary(max_size=70), max_size=5))
    pq.write_table(pq.read_table(FIRST / "evals.parquet").replace_schema_metadata(metadata), path)
    check_refused_or_read("evals", path)
