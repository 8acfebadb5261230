"""A new folder takes its name whole, or the old one stays."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from extrapolate import files
from extrapolate.errors import UserError


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


# Kills itself before the n-th system call that changes a folder.
REPLACES = """
import os, signal, sys
from pathlib import Path
from extrapolate import files
left = int(sys.argv[2])
def counted(call):
    def counting(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return counting
for name in ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "chmod"):
    setattr(os, name, counted(getattr(os, name)))
with files.new_folder(Path(sys.argv[1]), lambda out: None) as folder:
    (folder / "a.txt").write_text("new")
    (folder / "b.txt").write_text("new")
os.write(1, b"%d" % (int(sys.argv[2]) - left))
"""
OLD, NEW = {"a.txt": "old"}, {"a.txt": "new", "b.txt": "new"}


def replace(out: Path, fail: BaseException | None = None) -> None:
    with files.new_folder(out, lambda out: None) as folder:
        (folder / "a.txt").write_text("new")
        if fail is not None:
            raise fail
        (folder / "b.txt").write_text("new")


def make_old(out: Path) -> Path:
    out.mkdir()
    (out / "a.txt").write_text("old")
    return out


class TestNewFolder:
    def test_killed_anywhere_one_of_the_two_is_whole_and_the_next_call_leaves_nothing_else(
        self, tmp_path: Path
    ) -> None:
        def run(folder: Path, nth: int) -> "subprocess.CompletedProcess[bytes]":
            folder.mkdir()
            command = [sys.executable, "-c", REPLACES, str(make_old(folder / "made")), str(nth)]
            return subprocess.run(command, capture_output=True, check=False)

        calls = int(run(tmp_path / "whole", 1000).stdout)
        assert calls > 8
        assert content(tmp_path / "whole/made") == NEW
        for nth in range(1, calls + 1):
            folder = tmp_path / str(nth)
            assert run(folder, nth).returncode == -signal.SIGKILL
            found = folder / "made"
            if not found.exists():  # killed between two renames: both are there
                found = folder / ".made.previous.partial"
                assert content(folder / ".made.partial") == NEW
            assert content(found) in (OLD, NEW), nth
            if nth % 2:  # what follows fails
                with pytest.raises(KeyError):
                    replace(folder / "made", KeyError())
                assert content(folder / "made") in (OLD, NEW), nth
                assert os.listdir(folder) == ["made"], nth
            replace(folder / "made")
            assert content(folder / "made") == NEW
            assert os.listdir(folder) == ["made"], nth

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    @pytest.mark.parametrize("there", [True, False])
    def test_a_failure_changes_nothing(self, tmp_path: Path, error: BaseException, there: bool) -> None:
        if there:
            make_old(tmp_path / "made")
        with pytest.raises(type(error)):
            replace(tmp_path / "made", error)
        assert os.listdir(tmp_path) == ["made"] * there
        assert not there or content(tmp_path / "made") == OLD

    def test_a_failure_to_take_the_name_keeps_the_old_one(self, tmp_path: Path) -> None:
        rename = os.rename

        def fail(source: object, target: object) -> None:
            if str(source).endswith("/.made.partial"):
                raise OSError(5, "Input/output error", str(source))
            rename(source, target)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "rename", fail)
            with pytest.raises(OSError, match="Input/output error: 'made'"), contextlib.chdir(tmp_path):
                replace(make_old(Path("made")))
        assert os.listdir(tmp_path) == ["made"]
        assert content(tmp_path / "made") == OLD

    def test_what_is_there_stays_unless_it_may_go(self, tmp_path: Path) -> None:
        make_old(tmp_path / "made")
        with pytest.raises(ValueError, match="made already exists"), files.new_folder(tmp_path / "made"):
            pytest.fail("it was begun")
        assert content(tmp_path / "made") == OLD
        assert os.listdir(tmp_path) == ["made"]
        with (
            pytest.raises(ValueError, match="meanwhile already exists"),
            files.new_folder(tmp_path / "meanwhile"),
        ):
            make_old(tmp_path / "meanwhile")
        assert content(tmp_path / "meanwhile") == OLD
        (tmp_path / "made").chmod(0o700)
        replace(tmp_path / "made")
        assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
        assert sorted(os.listdir(tmp_path)) == ["made", "meanwhile"]

    def test_work_that_goes_on_is_kept_and_given_again(self, tmp_path: Path) -> None:
        def begin(error: BaseException, goes_on: bool = True) -> None:
            with files.new_folder(tmp_path / "made", goes_on=lambda folder: goes_on) as folder:
                (folder / "a.txt").write_text("half")
                raise error

        for kept in (KeyboardInterrupt(), OSError(28, "full")):
            with pytest.raises(type(kept)):
                begin(kept)
            assert os.listdir(tmp_path) == [".made.partial"]
        for error, goes_on in ((UserError("bad"), True), (KeyboardInterrupt(), False)):
            with pytest.raises(type(error)):
                begin(error, goes_on)
            assert os.listdir(tmp_path) == []
        with pytest.raises(KeyboardInterrupt):
            begin(KeyboardInterrupt())
        with files.new_folder(tmp_path / "made", goes_on=lambda folder: True) as folder:
            assert content(folder) == {"a.txt": "half"}
        assert os.listdir(tmp_path) == ["made"]

    def test_two_processes_never_write_one_folder(self, tmp_path: Path) -> None:
        with files.new_folder(tmp_path / "made") as folder:
            with pytest.raises(ValueError, match="made is being written by another process"):
                replace(tmp_path / "made")
            (folder / "a.txt").write_text("old")
        assert content(tmp_path / "made") == OLD
        assert os.listdir(tmp_path) == ["made"]

    def test_a_link_is_followed_and_stays(self, tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        for target in (make_old(tmp_path / "disk/made"), tmp_path / "disk/new"):
            (tmp_path / "link").unlink(missing_ok=True)
            (tmp_path / "link").symlink_to(target)
            replace(tmp_path / "link")
            assert (tmp_path / "link").is_symlink()
            assert content(target) == NEW
        assert sorted(os.listdir(tmp_path)) == ["disk", "link"]
        assert sorted(os.listdir(tmp_path / "disk")) == ["made", "new"]

    def test_what_cannot_be_replaced_as_a_whole_is_refused(self, tmp_path: Path) -> None:
        here = tmp_path / "here"
        (here / "below").mkdir(parents=True)
        (here / "file").touch()
        with contextlib.chdir(here / "below"):
            for out, words in {
                ".": "the folder you are in", "..": "or one above it", "/": "or one above it",
                "/proc": "a disk is mounted", "../file": "is a file",
            }.items():  # fmt: skip
                with pytest.raises(ValueError, match=words):
                    replace(Path(out))
            replace(Path("../new/../deep/er"))
        assert content(here / "deep/er") == NEW
        assert sorted(os.listdir(here)) == ["below", "deep", "file"]
