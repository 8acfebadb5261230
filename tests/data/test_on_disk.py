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
    path.write_bytes(b"what another process left")
    known = Seen(path)
    for _ in range(4000):
        digest = hashlib.sha256(b"%d" % draws.randrange(3000)).digest()
        assert known.add(digest) == (digest not in there)
        there.add(digest)
    assert path.stat().st_size > 16 * 1024
    known.close()
    assert not path.exists()


def test_a_full_disk_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def small(*arguments: Any, **named: Any) -> sqlite3.Connection:
        base = connect(*arguments, **named)
        base.execute("PRAGMA max_page_count=8")
        return base

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(OSError, match="No space left on device"):
        any(not known.add(b"%032d" % number) for known in [Seen(tmp_path / "seen")] for number in range(4000))
