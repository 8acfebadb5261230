"""Writing files and folders so that a crash leaves either the old or the new version, never a part of one."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from extrapolate.errors import UserError
from extrapolate.version import __version__

# Of all our files, to be raised if this version would misread one of an earlier one, or vice versa. A new column of a
# table needs no new format, because it is empty in files without it.
FORMAT = 1
SEAL = "sha256"  # the entry of a sealed JSON object
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # errors for lack of space

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of flock on a disk that has none


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary name beside `path`, flushes, and renames. On failure nothing is left behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with naming(path):
        temporary.unlink(missing_ok=True)  # from a killed process
        try:
            write(temporary)
            sync(temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync(path.parent)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """If writing fails, makes the error name this path instead of a temporary one.

    A library's error about lack of space becomes an OSError.
    """
    try:
        yield
    except Exception as error:
        name = str(getattr(error, "filename", None) or "")
        number = None if name else next((one for one in FULL if os.strerror(one) in str(error)), None)
        if isinstance(error, OSError) and name.endswith((".partial", ".lock")):
            number = error.errno
        if number is None or isinstance(error, UserError):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def sync(path: Path) -> None:
    """Makes a file's content or a folder's renames durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Makes a folder inside a run, unless it exists. Raises UserError if it is a link."""
    check_no_link(path)
    path.mkdir(exist_ok=True)


def check_no_link(path: Path) -> None:
    """Raises UserError if a folder to be written is a link: in a run from someone else, it may lead anywhere."""
    if path.is_symlink():
        raise UserError(f"{path} is a link: replace it with a folder")


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Writes a file atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file. Raises UserError if it is damaged or missing."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, too many digits, or too many brackets
        raise UserError(f"{path} is damaged: {error}; restore it") from error


def write_sealed(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a JSON object atomically, with a hash of itself, so that `read_sealed` detects every change."""
    write_json(path, {**record, SEAL: sealed_hash(record)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Reads an object from `write_sealed`, without the seal. Raises UserError if the file is damaged or missing."""
    record = read_json(path)
    return unsealed(record if isinstance(record, dict) else {}, str(path))


def unsealed(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The record without its seal. Raises UserError if the seal does not match the content."""
    content = {name: value for name, value in record.items() if name != SEAL}
    if record.get(SEAL) != sealed_hash(content):
        raise UserError(
            f"{where} is damaged, or was changed by hand: it does not have the hash it was written with; restore it"
        )
    return content


def check_format(where: object, found: object) -> None:
    """Raises UserError unless a file's format is the one that this version reads and writes."""
    if type(found) is not int:
        raise UserError(f"{where} is damaged: it does not say its format; restore it")
    if found != FORMAT:
        raise UserError(
            f"{where} was written by another version of extrapolate: its format is {found}, and {__version__} reads "
            f"format {FORMAT}; use that version"
        )


def sealed_hash(record: Mapping[str, Any]) -> str:
    """The SHA-256 of a JSON object, independent of its layout and the order of its keys."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def remove_partials(folder: Path) -> None:
    """Deletes temporary files of killed processes, also in subfolders. Needs the folder's lock."""
    for path in folder.rglob(".*.partial"):
        if not path.is_dir():
            path.unlink(missing_ok=True)


class InUse(UserError):  # noqa: N818 (what the place is)
    """Another process is writing to the folder."""


@contextlib.contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Locks the folder for one writer, or for several that share it. A killed process releases its lock.

    Raises InUse if another process holds it, UserError if the disk has no locks.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder; choose another `out`")
    folder.mkdir(parents=True, exist_ok=True)
    with _held(folder / ".lock", folder, shared=shared):
        yield


@contextlib.contextmanager
def new_folder(
    out: Path, check: Callable[[Path], None] | None = None, goes_on: Callable[[Path], bool] = lambda folder: False
) -> Iterator[Path]:
    """Gives an empty folder beside `out`, which is renamed to `out` at the end. On failure nothing is left behind.

    `goes_on` says whether a folder holds work that can be resumed. Such a folder from an earlier call is given instead
    of an empty one. If this call fails by anything but a UserError, its folder is kept if it holds such work.

    If `out` exists, `check` is called with it, and raises UserError if it must stay; without `check` it always stays.
    Otherwise the new folder replaces it. After a kill, the old or the new folder is there, complete; the next call
    removes the rest, and restores the old one if the kill came between the two renames. A link is followed. Raises
    UserError if `out` cannot be a new folder, or another process is writing it.
    """
    place = out.resolve()
    if place in (Path.cwd(), *Path.cwd().parents):
        raise UserError(f"{out} is the folder you are in, or one above it: name a folder of its own as `out`")
    if os.path.ismount(place):
        raise UserError(f"a disk is mounted at {out}, which cannot be replaced: name a folder in it as `out`")
    if place.exists() and not place.is_dir():
        raise UserError(f"{out} is a file, not a folder; choose another `out`")
    place.parent.mkdir(parents=True, exist_ok=True)
    new, old, lock = (place.with_name(f".{place.name}.{end}") for end in ("partial", "previous.partial", "lock"))

    def check_replaceable() -> None:
        if place.exists() and check is None:
            raise UserError(f"{out} already exists; choose another folder, or delete it")
        if place.exists() and check is not None:
            check(place)

    def settle(keep: bool) -> None:
        if old.exists() and not place.exists():
            old.rename(place)
        for path in (old,) if keep else (old, new):
            shutil.rmtree(path, ignore_errors=not path.exists())

    with naming(out), _held(lock, out):
        wrong = False
        try:
            settle(goes_on(new))
            check_replaceable()
            new.mkdir(exist_ok=True)
            try:
                yield new
            except UserError:
                wrong = True
                raise
            for path in (*new.iterdir(), new):  # libraries may not have flushed what they wrote
                sync(path)
            check_replaceable()  # again, so as not to lose what was put there in the meantime
            if place.exists():
                shutil.copymode(place, new)
                place.rename(old)
            new.rename(place)
            sync(place.parent)
        finally:
            settle(not wrong and goes_on(new))
            lock.unlink(missing_ok=True)  # a process that opened it sees that it is gone


@contextlib.contextmanager
def _held(path: Path, what: Path, *, shared: bool = False) -> Iterator[None]:
    """Holds a lock file. Raises InUse if another process has it, and so is writing `what`."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            mine = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):  # held, or just released and removed
            mine = False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            path.unlink(missing_ok=True)
            raise UserError(
                f"the disk of {path.parent.resolve()} has no file locks ({os.strerror(error.errno)}), so two processes "
                f"could write {what} at once: choose a folder on another disk, or mount this one with locks, such as "
                "-o flock for Lustre and -o local_lock=all for NFS"
            ) from error
        if not mine:
            raise InUse(f"{what} is being written by another process; wait for it or use another folder")
        yield
