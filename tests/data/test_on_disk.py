"""Which documents were there before, in little memory."""

import hashlib
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from extrapolate.data import on_disk
from extrapolate.data.on_disk import Seen


def test_a_digest_is_new_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "CACHE_KIB", 16)  # far less than they take
    path, draws, there = tmp_path / "seen", random.Random(0), set[bytes]()
    known = Seen(path)
    for _ in range(4000):
        digest = hashlib.sha256(b"%d" % draws.randrange(3000)).digest()
        assert known.add(digest) == (digest not in there)
        there.add(digest)
    assert path.stat().st_size > 16 * 1024
    known.close()
    assert not path.exists()


def test_what_another_process_left_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "seen").write_bytes(b"half")
    known = Seen(tmp_path / "seen")
    assert known.add(b"a" * 32)
    known.close()


def test_a_disk_that_fails_is_an_os_error(tmp_path: Path) -> None:
    known = Seen(tmp_path / "seen")
    known._base.execute("PRAGMA max_page_count=8")
    digests = [hashlib.sha256(b"%d" % number).digest() for number in range(4000)]
    with pytest.raises(OSError, match="No space left on device"):
        any(not known.add(digest) for digest in digests)


def test_so_is_one_that_is_full_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages are the least that a table takes: the library finds no room for the second."""
    connect = sqlite3.connect

    def full(*arguments: Any, **named: Any) -> sqlite3.Connection:
        base = connect(*arguments, **named)
        base.execute("PRAGMA max_page_count=1")
        return base

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(OSError, match="No space left on device"):
        Seen(tmp_path / "seen")


def test_no_room_for_the_file_itself_is_said_by_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Seen(tmp_path / "missing/seen")
