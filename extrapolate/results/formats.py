"""What the tables of earlier versions said in other words: translated when they are read.

A file's number of format grows where a newer version could misread it, or an older one: not where a column is added.
"""

import re
from collections.abc import Set

import pyarrow as pa
import pyarrow.compute as pc

from extrapolate.names import AS_TRAINED, WITHOUT_OWN
from extrapolate.results.columns import Table
from extrapolate.version import __version__

Columns = dict[str, pa.ChunkedArray]

FORMAT = 3
SEALED = 3  # from this format on a file has a seal
_FORMAT, _VERSION = b"extrapolate_format", b"extrapolate_version"  # the entries of a file's metadata


def stamp() -> dict[bytes, bytes]:
    """What the metadata of every file says: the format, and the version that wrote it."""
    return {_FORMAT: str(FORMAT).encode(), _VERSION: __version__.encode()}


def format_of(schema: pa.Schema) -> int:
    """A file's format: the first did not say it. Raises ValueError where it says what is none."""
    said = (schema.metadata or {}).get(_FORMAT, b"1")
    if not re.fullmatch(rb"[1-9][0-9]{0,3}", said):
        raise ValueError("it names no format")
    return int(said)


def version_of(schema: pa.Schema) -> str:
    """The version that wrote a file, in words where the file does not say it."""
    said = (schema.metadata or {}).get(_VERSION, b"0.1.0 or earlier")
    return said.decode() if re.fullmatch(rb"[\w.+ -]{1,40}", said) else "of an unknown version"


def translated(data: pa.Table, table: Table) -> pa.Table:
    """A table of any format up to this one, in today's words and columns."""
    columns = dict(zip(data.column_names, data.columns, strict=True))
    for number in range(format_of(data.schema), FORMAT):
        if number in _STEPS:
            columns = _STEPS[number](columns, {column.name for column in table.columns})
    return pa.table(columns)


def _from_1(columns: Columns, known: Set[str]) -> Columns:
    """It had other words for what was applied, and a probe's name in `protocol`, after `probe:`."""
    if (applied := columns.get("extension")) is not None:
        applied = pc.if_else(pc.equal(applied, "none"), AS_TRAINED, applied)
        columns = columns | {"extension": pc.if_else(pc.equal(applied, "own taken off"), WITHOUT_OWN, applied)}
    if "probe" in known and "protocol" in columns:
        names = pc.replace_substring_regex(columns["protocol"], pattern="^probe:", replacement="")
        columns = {name: column for name, column in columns.items() if name != "protocol"} | {"probe": names}
    return columns


_STEPS = {1: _from_1}  # the third format has the words of the second, and a seal
