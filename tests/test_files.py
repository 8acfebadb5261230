"""A crash leaves the old file or the new one; a folder has one writer."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate import files
from extrapolate.errors import UserError


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


class TestAtomicWriting:
    def test_the_new_content_replaces_the_old(self, tmp_path: Path) -> None:
        for text in ("old é", "new\n"):
            files.write_text(tmp_path / "a.txt", text)
            assert content(tmp_path) == {"a.txt": text}

    def test_the_old_content_is_there_until_the_new_is_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("old")

        def write(temporary: Path) -> None:
            temporary.write_text("new")
            assert path.read_text() == "old"
            assert temporary.parent == path.parent  # a rename across file systems is no rename

        files.write_atomically(path, write)
        assert path.read_text() == "new"

    @pytest.mark.parametrize("error", [OSError("no space left"), ValueError("bad"), KeyboardInterrupt()])
    @pytest.mark.parametrize("old", [{}, {"a.txt": "old"}])
    def test_a_failing_writer_changes_nothing(self, tmp_path: Path, error: BaseException, old: dict[str, str]) -> None:
        for name, text in old.items():
            (tmp_path / name).write_text(text)

        def write(temporary: Path) -> None:
            temporary.write_text("half")
            raise error

        with pytest.raises(type(error)):
            files.write_atomically(tmp_path / "a.txt", write)
        assert content(tmp_path) == old

    def test_a_writer_that_writes_nothing_changes_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("old")
        with pytest.raises(FileNotFoundError):
            files.write_atomically(tmp_path / "a.txt", lambda temporary: None)
        assert content(tmp_path) == {"a.txt": "old"}

    def test_a_kill_leaves_the_old_content_and_a_name_that_is_cleaned(self, tmp_path: Path) -> None:
        program = (
            "import os, signal, sys; from pathlib import Path; from extrapolate import files\n"
            "def write(temporary):\n"
            "    temporary.write_text('half')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "files.write_atomically(Path(sys.argv[1]), write)\n"
        )
        (tmp_path / "a.txt").write_text("old")
        killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.txt")], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert (tmp_path / "a.txt").read_text() == "old"
        assert len(content(tmp_path)) == 2
        files.remove_partials(tmp_path)
        assert content(tmp_path) == {"a.txt": "old"}

    def test_only_partials_are_removed(self, tmp_path: Path) -> None:
        for name in (".a.txt.77.partial", "a.txt", ".hidden", "b.partial"):
            (tmp_path / name).touch()
        files.remove_partials(tmp_path)
        assert sorted(content(tmp_path)) == [".hidden", "a.txt", "b.partial"]


class TestJson:
    @settings(max_examples=30)  # every write waits for the disk
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=10,
        )
    )
    def test_what_is_written_is_read(self, tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
        path = tmp_path_factory.getbasetemp() / "value.json"
        files.write_json(path, value)
        assert files.read_json(path) == value
        assert json.loads(path.read_bytes()) == value

    def test_what_json_cannot_say_leaves_the_old_content(self, tmp_path: Path) -> None:
        files.write_json(tmp_path / "a.json", {"old": 1})
        with pytest.raises(TypeError):
            files.write_json(tmp_path / "a.json", {"new": object()})
        assert files.read_json(tmp_path / "a.json") == {"old": 1}
        assert len(content(tmp_path)) == 1

    @pytest.mark.parametrize("raw", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"{'a': 1}"])
    def test_damage_is_named(self, tmp_path: Path, raw: bytes) -> None:
        (tmp_path / "a.json").write_bytes(raw)
        with pytest.raises(ValueError, match=r"a\.json is damaged: "):
            files.read_json(tmp_path / "a.json")

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"a\.json: no such file"):
            files.read_json(tmp_path / "a.json")


HOLD = (
    "import sys, time; from pathlib import Path; from extrapolate import files\n"
    "path = Path(sys.argv[1])\n"
    "with files._held(path, path) if path.is_file() else files.locked(path):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(60)\n"
)


@contextlib.contextmanager
def other_process_holding(folder: Path) -> Iterator[Callable[[], None]]:
    """Another process with the lock; yields what kills it as the system would."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)

    def kill() -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield kill
    finally:
        kill()
        process.stdout.close()


class TestLock:
    def test_another_process_is_refused_until_the_holder_is_killed(self, tmp_path: Path) -> None:
        with other_process_holding(tmp_path / "run") as kill:
            for _ in range(2):
                with (
                    pytest.raises(ValueError, match="run is being written by another process; wait for it"),
                    files.locked(tmp_path / "run"),
                ):
                    pytest.fail("two processes hold the folder")
            with files.locked(tmp_path / "other"):
                pass
            kill()
            with files.locked(tmp_path / "run"):
                pass

    def test_it_is_released_at_the_end_also_of_a_failure(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError), files.locked(tmp_path):
            raise KeyError
        with files.locked(tmp_path), pytest.raises(ValueError, match="another process"), files.locked(tmp_path):
            pass
        with files.locked(tmp_path):
            pass

    def test_it_makes_the_folder(self, tmp_path: Path) -> None:
        with files.locked(tmp_path / "a" / "b"):
            assert os.listdir(tmp_path / "a" / "b") == [".lock"]

    def test_a_lock_that_was_removed_meanwhile_does_not_count(self, tmp_path: Path) -> None:
        """Else two processes could each hold a file of that name."""
        lock = files.fcntl.flock

        def late(*arguments: int) -> None:
            lock(*arguments)
            (tmp_path / ".lock").unlink()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(files.fcntl, "flock", late)
            with pytest.raises(ValueError, match="another process"), files.locked(tmp_path):
                pytest.fail("the lock is not there")

    def test_a_link_in_its_place_is_not_followed(self, tmp_path: Path) -> None:
        """A folder can come from a stranger, and a link in it can lead to any file."""
        (tmp_path / "mine.txt").write_text("mine")
        (tmp_path / "run").mkdir()
        (tmp_path / "run/.lock").symlink_to(tmp_path / "mine.txt")
        with pytest.raises(ValueError, match=r"\.lock is a link"), files.locked(tmp_path / "run"):
            pytest.fail("it was followed")
        assert (tmp_path / "mine.txt").read_text() == "mine"


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

    def test_what_is_left_beside_a_finished_folder_can_be_removed(self, tmp_path: Path) -> None:
        replace(tmp_path / "made")
        files.tidy(tmp_path / "made")
        assert os.listdir(tmp_path) == ["made"]
        (tmp_path / ".made.previous.partial").mkdir()
        (tmp_path / ".made.lock").touch()
        with other_process_holding(tmp_path / ".made.lock") as kill:
            files.tidy(tmp_path / "made")
            assert len(os.listdir(tmp_path)) == 3
            kill()
        files.tidy(tmp_path / "made")
        assert os.listdir(tmp_path) == ["made"]
        assert content(tmp_path / "made") == NEW

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
            rename(source, target)  # type: ignore[call-overload]

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

    def test_what_came_meanwhile_stays(self, tmp_path: Path) -> None:
        with (
            pytest.raises(ValueError, match="made already exists"),
            files.new_folder(tmp_path / "made"),
        ):
            make_old(tmp_path / "made")
        assert content(tmp_path / "made") == OLD
        assert os.listdir(tmp_path) == ["made"]

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
        (here / "loop").symlink_to("loop")
        with contextlib.chdir(here / "below"):
            for out, words in {
                ".": "the folder you are in", "..": "or one above it", "/": "or one above it",
                "/proc": "a disk is mounted", "../file": "is a file", "../file/deep": "is a file",
                "../loop": "a link to itself",
            }.items():  # fmt: skip
                with pytest.raises(ValueError, match=words):
                    replace(Path(out))
            replace(Path("../new/../deep/er"))
        assert content(here / "deep/er") == NEW
        assert sorted(os.listdir(here)) == ["below", "deep", "file", "loop"]

    def test_the_mode_of_the_old_folder_stays(self, tmp_path: Path) -> None:
        make_old(tmp_path / "made").chmod(0o700)
        replace(tmp_path / "made")
        assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


class TestFullDisk:
    """Libraries say it in words of their own, and none says which file."""

    @pytest.mark.parametrize(
        "error",
        [
            OSError(28, "No space left on device"),
            OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
            RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
            Exception("File too large (os error 27)"),
        ],
    )
    def test_the_file_is_named(self, tmp_path: Path, error: Exception) -> None:
        def write(temporary: Path) -> None:
            raise error

        with pytest.raises(OSError, match=r"a\.txt") as found:
            files.write_atomically(tmp_path / "a.txt", write)
        assert found.value.errno in (27, 28)
        assert found.value.filename == str(tmp_path / "a.txt")

    def test_another_file_keeps_its_name(self, tmp_path: Path) -> None:
        def write(temporary: Path) -> None:
            (tmp_path / "other").read_text()

        with pytest.raises(FileNotFoundError) as found:
            files.write_atomically(tmp_path / "a.txt", write)
        assert found.value.filename == str(tmp_path / "other")
