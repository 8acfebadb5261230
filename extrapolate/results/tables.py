"""The columns of every table, declared once as data; and writing and reading tables by them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extrapolate import files


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, its unit (empty where it has none), and whether every row must have a value."""

    name: str
    type: pa.DataType
    unit: str = ""
    required: bool = True


@dataclass(frozen=True)
class Table:
    """A table's columns, and those that identify a row: a row with the same key replaces the old one."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def schema(self) -> pa.Schema:
        """The Arrow schema; units are in the fields' metadata."""
        return pa.schema(
            [pa.field(c.name, c.type, nullable=not c.required, metadata={"unit": c.unit}) for c in self.columns]
        )


_TEXT, _INT, _REAL = pa.string(), pa.int64(), pa.float64()

_SETTING = (
    Column("run", _TEXT),
    Column("model", _TEXT),
    Column("extension", _TEXT),
    Column("protocol", _TEXT),
    Column("factor", _REAL, "evaluation length / training length"),
    Column("length", _INT, "tokens"),
    Column("split", _TEXT),
    Column("step", _INT, "steps: 0 where the checkpoint was imported"),
    Column("precision", _TEXT),
    Column("targets_hash", _TEXT),
)
_KEY = ("run", "extension", "protocol", "factor", "split", "step", "precision", "targets_hash")

EVALS = Table(
    columns=(
        *_SETTING,
        # None where the encoding ends before this length.
        Column("loss", _REAL, "nats per target", required=False),
        Column("perplexity", _REAL, "", required=False),
        Column("bits_per_byte", _REAL, "bits", required=False),
        # The plain model on the same targets, its context cut back to between L/2 and L tokens.
        Column("control_loss", _REAL, "nats per target"),
        # The least loss that is possible with the row's windows, where the text's origin tells it.
        Column("optimum_loss", _REAL, "nats per target", required=False),
        Column("n_targets", _INT, "targets"),
        Column("n_documents", _INT, "documents"),
        Column("n_bytes", _REAL, "bytes of text in the targets"),
        Column("encoding", _TEXT),
        Column("encoding_arguments", _TEXT, "JSON"),
        Column("display", _TEXT),
        Column("caption", _TEXT),
        Column("seq_len", _INT, "tokens: L, which factors count in"),
        # Another length, and the name of the run it started from, where the run was tuned.
        Column("trained_length", _INT, "tokens"),
        Column("origin", _TEXT, required=False),
        Column("own_extension", _TEXT, "always applied, unless taken off", required=False),
        # Where an imported checkpoint came from. None of how it was trained is known, and None stands for that.
        Column("imported", _TEXT, required=False),
        Column("tokens", _INT, "training tokens", required=False),
        Column("seed", _INT, required=False),
        Column("preset", _TEXT, required=False),
        Column("parameters", _INT),
        Column("training_precision", _TEXT, required=False),
        Column("training_seconds", _REAL, "seconds: median step time times steps", required=False),
        # None where every window came with a longer one that starts at its place.
        Column("tokens_per_s", _REAL, "inputs per second of evaluation", required=False),
        # The whole process's, or what the device held for it.
        Column("peak_mib", _REAL, "MiB: the most memory held during the evaluation", required=False),
        Column("config_hash", _TEXT, "everything that decides the weights but the seed"),
        Column("setting_hash", _TEXT, "everything that decides the weights but the encoding and the seed"),
        Column("corpus_hash", _TEXT),
        Column("weights_sha256", _TEXT),
        Column("training_version", _TEXT, required=False),
        Column("training_commit", _TEXT, required=False),
        Column("training_machine", _TEXT, required=False),
        Column("version", _TEXT, "of the evaluation"),
        Column("commit", _TEXT, "of the evaluation"),
        Column("machine", _TEXT, "of the evaluation"),
        Column("evaluated_at", pa.timestamp("s", tz="UTC")),
    ),
    key=_KEY,
)

EVAL_DOCUMENTS = Table(
    columns=(
        *_SETTING,
        Column("document", _TEXT),
        Column("block", _INT, "stretches of 16 L tokens of the document: where the window begins"),
        Column("position", _INT, "tokens: where a bucket of L/2 inputs begins in its window"),
        Column("loss", _REAL, "nats per target", required=False),
        Column("control_loss", _REAL, "nats per target"),
        Column("optimum_loss", _REAL, "nats per target", required=False),
        Column("n_targets", _INT, "targets"),
        Column("n_bytes", _REAL, "bytes of text in the targets"),
    ),
    key=(*_KEY, "document", "block", "position"),
)

PROBES = Table(
    columns=(
        *_SETTING,
        Column("depth", _REAL, "0: farthest from the question, 1: next to it"),
        # None where the encoding ends before this length.
        Column("accuracy", _REAL, "share of windows, or of their answers", required=False),
        Column("low", _REAL, "Wilson's interval of 95 %, from the number of windows", required=False),
        Column("high", _REAL, "the same", required=False),
        Column("loss", _REAL, "nats per answer", required=False),
        # The plain model on the same windows, its context cut back to the last L tokens.
        Column("control_accuracy", _REAL, "as accuracy"),
        Column("control_loss", _REAL, "nats per answer"),
        Column("chance", _REAL, "accuracy of an answer drawn blindly"),
        Column("n_trials", _INT, "windows"),
        Column("n_answers", _INT, "tokens"),
        *EVALS.columns[next(at for at, column in enumerate(EVALS.columns) if column.name == "encoding") :],
    ),
    key=(*_KEY, "depth"),
)


def write(path: Path, rows: Iterable[Mapping[str, Any]], table: Table) -> None:
    """Writes rows as a Parquet file, atomically. Raises ValueError where a row does not fit the table's columns."""
    rows = [dict(row) for row in rows]
    for row in rows:
        _check_row(row, table, path.name)
    try:
        data = pa.Table.from_pylist(rows, schema=table.schema())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"{path.name}: {error}") from error
    files.write_atomically(path, lambda temporary: pq.write_table(data, temporary))


def _check_row(row: Mapping[str, Any], table: Table, where: str) -> None:
    known = {column.name for column in table.columns}
    if unknown := sorted(set(row) - known):
        raise ValueError(f"{where}: there is no column {', '.join(unknown)}")
    for column in table.columns:
        value = row.get(column.name)
        if column.required and value is None:
            raise ValueError(f"{where}: a row has no {column.name}")
        if pa.types.is_integer(column.type) and isinstance(value, float) and not value.is_integer():
            raise ValueError(f"{where}: {column.name} is {value}, not a whole number")


def read(path: Path, table: Table) -> list[dict[str, Any]]:
    """Reads a table's rows; None where there is no value, which is not the same as NaN.

    Raises ValueError where the file is damaged, or lacks a column.
    """
    try:
        data = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is damaged: {error}; delete it and evaluate again") from error
    missing = [c.name for c in table.columns if c.name not in data.column_names]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; delete it and evaluate again")
    return data.select([c.name for c in table.columns]).to_pylist()


def merge(path: Path, rows: list[dict[str, Any]], table: Table, run: str | None = None) -> None:
    """Adds rows to a table on disk; those with the key of a new row are replaced.

    With `run`, the table is that run's own: rows under another name, from before its folder was renamed, go.
    """
    replaced = {tuple(row.get(name) for name in table.key) for row in rows}
    old = read(path, table) if path.exists() else []
    kept = [row for row in old if tuple(row[name] for name in table.key) not in replaced]
    if run is not None:
        kept = [row for row in kept if row["run"] == run]
    write(path, [*kept, *rows], table)
