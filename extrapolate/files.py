"""Writing so that a crash leaves the old file or the new one, never half of either."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError

SEAL = "sha256"  # the entry of a sealed JSON object


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Calls `write` with a temporary name beside `path`, flushes, and renames. On failure nothing is left behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Writes a file atomically."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_atomically(path, write)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file. Raises UserError where it is damaged or not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, too many digits, or too many brackets
        raise UserError(f"{path} is damaged: {error}") from error


def write_sealed(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a JSON object atomically, with a hash of itself: `read_sealed` sees every change."""
    write_json(path, {**record, SEAL: sealed_hash(record)})


def read_sealed(path: Path, since: int | None = None) -> dict[str, Any]:
    """Reads a JSON object. Where it has a seal, the seal must be that of its content, and is left out.

    `since`: the first number of its `format` that has a seal; without one, such a file is damaged. Raises UserError
    where it is damaged or not there.
    """
    record = read_json(path)
    if not isinstance(record, dict):
        raise UserError(f"{path} is damaged: it is not an object")
    seal, number = record.pop(SEAL, None), record.get("format")
    needed = since is not None and not (isinstance(number, int) and number < since)
    if (needed or seal is not None) and seal != sealed_hash(record):
        raise UserError(f"{path} is damaged, or was changed by hand: it does not have the hash it was written with")
    return record


def sealed_hash(record: Mapping[str, Any]) -> str:
    """The SHA-256 of a JSON object's content, whatever its layout and the order of its keys."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def remove_partials(folder: Path) -> None:
    """Deletes what killed processes left under temporary names. Only the holder of the folder's lock may call it."""
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder for one writer; a killed process lets go of it. Raises UserError where another holds it."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder; choose another `out`")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder} is being written by another process; wait for it or use another folder"
            ) from None
        yield
