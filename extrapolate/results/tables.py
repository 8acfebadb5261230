"""The columns of every table, declared once as data; and writing and reading tables by them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extrapolate import files
from extrapolate.errors import UserError


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, its unit (empty where it has none), and whether every row must have a value.

    `meaning` says in plain English what it holds, and `empty`, where it is not required, when it holds nothing.
    `later`: tables that were written before there was this column are read as if it held nothing.
    """

    name: str
    type: pa.DataType
    unit: str = ""
    required: bool = True
    meaning: str = ""
    empty: str = ""
    later: bool = False


@dataclass(frozen=True)
class Table:
    """A table's columns, and those that identify a row: a row with the same key replaces the old one."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def schema(self) -> pa.Schema:
        """The Arrow schema; units and meanings are in the fields' metadata."""
        return pa.schema(
            [
                pa.field(c.name, c.type, nullable=not c.required, metadata={"unit": c.unit, "meaning": c.meaning})
                for c in self.columns
            ]
        )


_TEXT, _INT, _REAL = pa.string(), pa.int64(), pa.float64()


def _always(name: str, type: pa.DataType, unit: str, meaning: str) -> Column:
    return Column(name, type, unit, meaning=meaning)


def _sometimes(name: str, type: pa.DataType, unit: str, meaning: str, empty: str) -> Column:
    return Column(name, type, unit, required=False, meaning=meaning, empty=empty)


_ENDS = "the encoding ends before this length"
_NO_OPTIMUM = "the corpus is not a `synthetic:` one"
_IMPORTED = "the run was imported"

_SETTING = (
    _always("run", _TEXT, "", "The name of the run's folder."),
    _always("model", _TEXT, "", "The encoding and what was applied to it, as tables show them: `RoPE + YaRN`."),
    _always(
        "extension", _TEXT, "",
        "What was applied at inference, as `--extend` takes it. `none`: nothing but the run's own extension. "
        "`own taken off`: the run's own extension was left out.",
    ),
    _always("protocol", _TEXT, "", "Which tokens were scored, with which context. `probe:` begins a probe's name."),
    _always("factor", _REAL, "", "The evaluation length divided by the training length L (`seq_len`)."),
    _always("length", _INT, "tokens", "The evaluation length: the inputs in a window."),
    _always("split", _TEXT, "", "The held-out split that was evaluated: `test` or `validation`."),
    _always("step", _INT, "optimiser steps", "The training step of the checkpoint; 0 where it was imported."),
    _always("precision", _TEXT, "", "The precision of the evaluation: `fp32`, `bf16` or `int8`."),
    _always("targets_hash", _TEXT, "", "Identifies the scored targets. Compare only rows whose hashes are equal."),
)  # fmt: skip
_KEY = ("run", "extension", "protocol", "factor", "split", "step", "precision", "targets_hash")
_LOSS = _sometimes("loss", _REAL, "nats per target", "The mean negative log-likelihood of the targets.", _ENDS)
_CONTROL_LOSS = _always(
    "control_loss", _REAL, "nats per target",
    "The loss of the plain model on the same targets, its context cut back to between L/2 and L tokens.",
)  # fmt: skip
_OPTIMUM_LOSS = _sometimes(
    "optimum_loss", _REAL, "nats per target", "The least loss that is possible with the row's windows.", _NO_OPTIMUM
)
_PROVENANCE = (
    _always("encoding", _TEXT, "", "The encoding's name, as `--pe` takes it."),
    _always("encoding_arguments", _TEXT, "JSON", "All of the encoding's arguments, as resolved for this run."),
    _always("display", _TEXT, "", "The encoding's name as it is printed."),
    _always("caption", _TEXT, "", "What a table with this encoding must say about it; often an empty text."),
    _always("seq_len", _INT, "tokens", "The training length L, which factors count in."),
    _always("trained_length", _INT, "tokens", "The length of the training windows: not L where the run was tuned."),
    _sometimes("origin", _TEXT, "", "The name of the run that this one continues.", "the run continues no other"),
    Column(
        "extension_sha256", _TEXT, required=False, later=True,
        meaning="The SHA-256 of the user's own file that `extension` names; several are joined by `+`. The run keeps a "
        "copy, `extensions/<SHA-256>.py`.", empty="the extension is not of a user's own file",
    ),
    _sometimes(
        "own_extension", _TEXT, "", "The extension that belongs to the run and is always applied.", "the run has none"
    ),
    _sometimes(
        "imported", _TEXT, "", "Where an imported checkpoint, or a model of another library, came from.",
        "the run was trained by this program",
    ),
    _sometimes("tokens", _INT, "tokens", "How many tokens the checkpoint was trained on.", _IMPORTED),
    _sometimes("seed", _INT, "", "The seed of the weights, the order and dropout.", _IMPORTED),
    _sometimes("preset", _TEXT, "", "The preset whose sizes the model has.", _IMPORTED),
    _sometimes(
        "parameters", _INT, "", "The number of the model's parameters; shared ones count once.",
        "another library runs the model, and it is no torch module",
    ),
    _sometimes("training_precision", _TEXT, "", "The precision of the training: `fp32` or `bf16`.", _IMPORTED),
    _sometimes(
        "training_seconds", _REAL, "seconds", "How long training took: the median step time times the steps.",
        "the run was imported, or continues another",
    ),
    _sometimes(
        "tokens_per_s", _REAL, "inputs per second", "The speed of the evaluation.",
        "every window came with a longer one that starts at its place, or the encoding ends before this length",
    ),
    _sometimes(
        "peak_mib", _REAL, "MiB",
        "The most memory that was held during the evaluation: by the whole process, or on the device for it.",
        "the system does not tell, or the encoding ends before this length",
    ),
    _always("config_hash", _TEXT, "", "Identifies everything that decides the weights but the seed."),
    _always("setting_hash", _TEXT, "", "Identifies everything that decides the weights but the encoding and the seed."),
    _always("corpus_hash", _TEXT, "", "Identifies the corpus. Losses on different corpora cannot be compared."),
    _always("weights_sha256", _TEXT, "", "Identifies the weights that were evaluated."),
    _sometimes("training_version", _TEXT, "", "The version of this program that trained the run.", _IMPORTED),
    _sometimes(
        "training_commit", _TEXT, "", "The commit that trained the run; `+` after it: with changes. An empty text "
        "where the program was not run from its repository.", _IMPORTED,
    ),
    _sometimes("training_machine", _TEXT, "", "The machine that trained the run.", _IMPORTED),
    _always("version", _TEXT, "", "The version of this program that evaluated."),
    _always("commit", _TEXT, "", "The commit that evaluated, as `training_commit`."),
    _always("machine", _TEXT, "", "The machine that evaluated."),
    _always("evaluated_at", pa.timestamp("s", tz="UTC"), "UTC", "When the evaluation of this row ended."),
)  # fmt: skip

EVALS = Table(
    columns=(
        *_SETTING,
        _LOSS,
        _sometimes("perplexity", _REAL, "", "e to the power of the loss.", _ENDS),
        _sometimes(
            "bits_per_byte", _REAL, "bits", "The loss per byte of text, in bits: comparable between tokenizers.",
            "the encoding ends before this length, or the targets stand for no bytes",
        ),
        _CONTROL_LOSS,
        _OPTIMUM_LOSS,
        _always("n_targets", _INT, "targets", "How many tokens were scored."),
        _always("n_documents", _INT, "documents", "How many documents they come from."),
        _always("n_bytes", _REAL, "bytes", "How many bytes of text the targets stand for."),
        *_PROVENANCE,
    ),
    key=_KEY,
)  # fmt: skip

EVAL_DOCUMENTS = Table(
    columns=(
        *_SETTING,
        _always("document", _TEXT, "", "The document's name in the corpus."),
        _always(
            "block", _INT, "stretches of 16 L tokens",
            "The stretch of the document in which the window begins, counted from 0.",
        ),
        _always(
            "position", _INT, "tokens",
            "Where a bucket of L/2 inputs begins in its window. A target is in the bucket of the input before it.",
        ),
        _LOSS,
        _CONTROL_LOSS,
        _OPTIMUM_LOSS,
        _always("n_targets", _INT, "targets", "How many tokens were scored."),
        _always("n_bytes", _REAL, "bytes", "How many bytes of text the targets stand for."),
    ),
    key=(*_KEY, "document", "block", "position"),
)  # fmt: skip

PROBES = Table(
    columns=(
        *_SETTING,
        _always("depth", _REAL, "", "Where the block lies: at 0 farthest from the question, at 1 next to it."),
        _sometimes(
            "accuracy", _REAL, "share", "The share of windows that are right; of a probe whose answers count one by "
            "one, the share of answers.", _ENDS,
        ),
        _sometimes("low", _REAL, "share", "The lower end of Wilson's 95 % interval of the accuracy.", _ENDS),
        _sometimes("high", _REAL, "share", "The upper end of the same interval.", _ENDS),
        _sometimes("loss", _REAL, "nats per answer", "The mean negative log-likelihood of the answers.", _ENDS),
        _always(
            "control_accuracy", _REAL, "share", "The accuracy of the plain model that sees the last L tokens alone."
        ),
        _always("control_loss", _REAL, "nats per answer", "The loss of the same."),
        _always("chance", _REAL, "share", "The accuracy of an answer that is drawn blindly."),
        _always("n_trials", _INT, "windows", "How many windows were asked."),
        _always("n_answers", _INT, "tokens", "How many answers they have."),
        *_PROVENANCE,
    ),
    key=(*_KEY, "depth"),
)  # fmt: skip


def write(path: Path, rows: Iterable[Mapping[str, Any]], table: Table) -> None:
    """Writes rows as a Parquet file, atomically. Raises UserError where a row does not fit the table's columns."""
    rows = [dict(row) for row in rows]
    for row in rows:
        _check_row(row, table, path.name)
    try:
        data = pa.Table.from_pylist(rows, schema=table.schema())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UserError(f"{path.name}: {error}") from error
    files.write_atomically(path, lambda temporary: pq.write_table(data, temporary))


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

    Raises UserError where the file is damaged, or lacks a column.
    """
    try:
        data = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is damaged: {error}; delete it and evaluate again") from error
    missing = [c for c in table.columns if c.name not in data.column_names]
    if lost := [c.name for c in missing if not c.later]:
        raise UserError(f"{path} has no column {', '.join(lost)}; delete it and evaluate again")
    for column in missing:
        data = data.append_column(column.name, pa.nulls(len(data), column.type))
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
