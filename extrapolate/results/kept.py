"""The rows that a run keeps: a file for each weights, thing that was asked, extension and precision.

    rope/results/4f2a91c07b3e/windows/as-trained.parquet            losses, a row a length
    rope/results/4f2a91c07b3e/windows/yarn:factor=8.bf16.parquet
    rope/results/4f2a91c07b3e/documents/windows/as-trained.parquet  the same losses by document
    rope/results/4f2a91c07b3e/probes/needle/as-trained.parquet

`4f2a91c07b3e` begins the hash of the weights, so rows of other weights never mix. A user's extension has the hash of
its file behind its name. pandas reads each of the folders, such as `windows`, as one table.
"""

import hashlib
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from safetensors import SafetensorError, safe_open

from extrapolate.errors import UserError
from extrapolate.folders import CHECKPOINTS, HALF, LOG, METADATA, METRICS, RESULTS, STATE, WEIGHTS
from extrapolate.results.columns import Table
from extrapolate.results.parquet import check as check_file
from extrapolate.results.parquet import merge, merge_columns, read_columns
from extrapolate.results.tables import EVAL_DOCUMENTS, EVAL_TARGETS, EVALS, INSPECTIONS, PROBES, TASKS

Row = Mapping[str, Any]
TABLES = (EVALS, EVAL_DOCUMENTS, EVAL_TARGETS, PROBES, TASKS, INSPECTIONS)
_DIGITS = 12  # of a hash, in names
_LONGEST = 160  # bytes of a name; files' names may have 255


def folder_of(run: Path, weights_sha256: str) -> Path:
    """The folder with the rows of some weights."""
    return run / RESULTS / weights_sha256[:_DIGITS]


def path_of(run: Path, table: Table, row: Row) -> Path:
    """The file in which a run keeps a row of losses, or what belongs to it in another table."""
    precision = "" if row["precision"] == "fp32" else f".{row['precision']}"
    folder = folder_of(run, row["weights_sha256"]) / table.folder / _name(row[table.by])
    return folder / f"{_extension(row)}{precision}.parquet"


def add(run: Path, table: Table, rows: Sequence[Row]) -> None:
    """Adds rows to those that a run keeps, in place of older ones with the same key.

    Rows of an extension also replace all those of another version of its file.
    """
    files: dict[Path, list[dict[str, Any]]] = {}
    for row in rows:
        files.setdefault(path_of(run, table, row), []).append(dict(row))
    for path, mine in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        merge(path, mine, table)
        for other in _other_versions(path, mine[0]):
            other.unlink()


def add_losses(run: Path, rows: Sequence[Row], documents: list[dict[str, Any]], targets: pa.Table) -> None:
    """Adds the rows of one extension by one protocol, with what belongs to them; `targets` may be empty.

    The rows come last: if they are there, so is what belongs to them.
    """
    by_document, by_target = (path_of(run, table, rows[0]) for table in (EVAL_DOCUMENTS, EVAL_TARGETS))
    by_document.parent.mkdir(parents=True, exist_ok=True)
    merge(by_document, documents, EVAL_DOCUMENTS)
    if len(targets):
        by_target.parent.mkdir(parents=True, exist_ok=True)
        merge_columns(by_target, targets, EVAL_TARGETS)
    add(run, EVALS, rows)
    for path in (by_document, by_target):
        for other in _other_versions(path, rows[0]):
            other.unlink()


def _other_versions(path: Path, row: Row) -> list[Path]:
    """The files beside one, with the rows of other versions of its extension in the same precision."""
    if row["extension_sha256"] is None or not path.parent.is_dir():
        return []
    name, _, version = path.name.rpartition("@")
    precision = version.partition(".")[2]

    def is_other(other: Path) -> bool:
        before, _, after = other.name.rpartition("@")
        return other != path and before == name and after.partition(".")[2] == precision

    return list(filter(is_other, path.parent.iterdir()))


def _extension(row: Row) -> str:
    """The extension as a file's name, with the hash of the user's file, if it comes from one."""
    version = "+".join(sha256[:_DIGITS] for sha256 in (row["extension_sha256"] or "").split("+"))
    return _name(row["extension"]) + (f"@{version}" if version else "")


def _name(text: str) -> str:
    """A text as the name of a file or folder."""
    name = quote(text, safe=" ()=,+:'")
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}~{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def files_of(run: Path, table: Table, weights: Collection[str] | None = None) -> Iterator[Path]:
    """The files with a run's rows in a table, of these weights (hashes; default: of all), in the order of names."""
    known = None if weights is None else {sha256[:_DIGITS] for sha256 in weights}
    for folder in sorted((run / RESULTS).glob("*/")):
        if known is None or folder.name in known:
            own = {other.folder for other in TABLES} - {""}
            yield from sorted(
                path
                for path in (folder / table.folder).glob("*/*.parquet")
                if table.folder or path.parent.name not in own
            )


def read_kept(run: Path, table: Table, weights: Collection[str] | None = None) -> pa.Table | None:
    """A run's rows in a table, as `read_columns` gives them, under the run's present name; None if there are none.

    weights: hashes of those whose rows are read (default: of all). Raises UserError if a file is damaged.
    """
    found = [read_columns(path, table) for path in files_of(run, table, weights)]
    if not found:
        return None
    rows = pa.concat_tables(found).unify_dictionaries().combine_chunks()
    name = pa.repeat(run.resolve().name, len(rows)).dictionary_encode()
    return rows.set_column(rows.column_names.index("run"), "run", name)


def check(run: Path) -> None:
    """Raises UserError if a file of a run's rows is damaged, or of a version that keeps more in it."""
    for table in TABLES:
        for path in files_of(run, table):
            check_file(path, table)


def weights_in(run: Path) -> list[str] | None:
    """The hashes of the weights in a run's folder: first the last ones, then those kept before.

    None if the folder has no weights, because they are another library's or were left elsewhere. Empty if the last ones
    are damaged, another program's, or not there yet. Raises UserError if a file cannot be read.
    """
    last = run / WEIGHTS
    under_way = (run / STATE).is_file() or ((run / LOG).is_file() and not (run / METRICS).is_file())
    if not last.is_file() and not under_way:
        return None
    kept = [path for folder in (CHECKPOINTS, HALF) for path in sorted((run / folder).glob("*.safetensors"))]
    found = [_sha256_in(path) for path in (last, *kept)]
    return [sha256 for sha256 in found if sha256 is not None] if found[0] else []


def _sha256_in(weights: Path) -> str | None:
    """The hash that the header of a file of weights has; None if it is damaged or lacks our record."""
    try:
        with safe_open(weights, framework="numpy") as file:
            return str(json.loads((file.metadata() or {})[METADATA])["values"])
    except (FileNotFoundError, SafetensorError, TypeError, KeyError, ValueError):
        return None
    except OSError as error:
        raise UserError(f"{weights} cannot be read: {error.strerror}") from error


def of_other_weights(run: Path, weights: Iterable[str]) -> list[Path]:
    """The folders with rows of other weights than these, given by their hashes."""
    here = {folder_of(run, sha256) for sha256 in weights}
    return [folder for folder in sorted((run / RESULTS).glob("*/")) if folder not in here]


def delete_of_other_weights(run: Path, weights: Iterable[str]) -> int:
    """Deletes all rows of other weights than these, and returns how many others there were."""
    others = of_other_weights(run, weights)
    for folder in others:
        shutil.rmtree(folder)
    return len(others)
