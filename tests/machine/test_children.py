"""Processes of this program: what is sent to them while they start."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from extrapolate.machine.children import Child


def serve(connection: Connection) -> None:
    """What a process would do that never comes to it: its module takes long to import."""


def test_one_that_is_stopped_while_it_starts_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "slow_start.py").write_text(f"import time\nopen({str(begun)!r}, 'w')\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(serve, "__module__", "slow_start")
    with Child(serve, "the process") as child:
        end = time.monotonic() + 20
        while not begun.exists() and time.monotonic() < end:
            time.sleep(0.01)
        child.interrupt()
        child.wait()
    assert begun.exists()
    assert capfd.readouterr().err == ""
