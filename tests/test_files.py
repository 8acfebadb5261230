"""A crash leaves the old file or the new one; a folder has one writer."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate import files
from extrapolate.errors import UserError

HOLD = (
    "import sys, time; from pathlib import Path; from extrapolate import files\n"
    "with files.locked(Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(60)\n"
)


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


class TestAtomicWriting:
    def test_the_old_content_is_there_until_the_new_is_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("old")

        def write(temporary: Path) -> None:
            temporary.write_text("new")
            assert path.read_text() == "old"
            assert temporary.parent == path.parent  # a rename across file systems is no rename

        files.write_atomically(path, write)
        assert path.read_text() == "new"
        with pytest.raises(FileNotFoundError):  # a writer that writes nothing
            files.write_atomically(path, lambda temporary: None)
        with pytest.raises(TypeError):
            files.write_json(path, {"a": object()})
        assert content(tmp_path) == {"a.txt": "new"}

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

    def test_a_kill_leaves_the_old_content_and_a_name_that_is_cleaned(self, tmp_path: Path) -> None:
        program = (
            "import os, signal, sys; from pathlib import Path; from extrapolate import files\n"
            "def write(temporary):\n"
            "    temporary.write_text('half')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "files.write_atomically(Path(sys.argv[1]), write)\n"
        )
        (tmp_path / "a.txt").write_text("old")
        for name in (".hidden", "b.partial"):
            (tmp_path / name).touch()
        killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.txt")], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert (tmp_path / "a.txt").read_text() == "old"
        assert len(content(tmp_path)) == 4
        files.remove_partials(tmp_path)
        assert content(tmp_path) == {"a.txt": "old", ".hidden": "", "b.partial": ""}


class TestJson:
    @settings(max_examples=30, deadline=None)  # every write waits for the disk
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

    @pytest.mark.parametrize("raw", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"{'a': 1}"])
    def test_damage_is_named(self, tmp_path: Path, raw: bytes) -> None:
        (tmp_path / "a.json").write_bytes(raw)
        with pytest.raises(ValueError, match=r"a\.json is damaged: "):
            files.read_json(tmp_path / "a.json")
        with pytest.raises(ValueError, match=r"b\.json: no such file"):
            files.read_json(tmp_path / "b.json")


class TestLock:
    def test_another_process_is_refused_until_the_holder_is_killed(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            for _ in range(2):
                with (
                    pytest.raises(ValueError, match="run is being written by another process; wait for it"),
                    files.locked(tmp_path / "run"),
                ):
                    pytest.fail("two processes hold the folder")
            with files.locked(tmp_path / "other"):
                pass
            holder.kill()
            holder.wait()
            with files.locked(tmp_path / "run"):
                pass

    def test_it_is_released_at_the_end_also_of_a_failure(self, tmp_path: Path) -> None:
        with files.locked(tmp_path / "a" / "b"):
            assert os.listdir(tmp_path / "a" / "b") == [".lock"]
        with pytest.raises(KeyError), files.locked(tmp_path):
            raise KeyError
        with files.locked(tmp_path), pytest.raises(ValueError, match="another process"), files.locked(tmp_path):
            pass
        with files.locked(tmp_path):
            pass

    @pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
    @pytest.mark.parametrize("make", [files.locked, files.new_folder])
    def test_a_disk_without_locks_is_named_with_what_to_do(self, tmp_path: Path, monkeypatch, number, make) -> None:
        def flock(*arguments: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(files.fcntl, "flock", flock)
        (tmp_path / "disk").mkdir()
        said = f"the disk of {tmp_path}/disk.* has no file locks .*: choose a folder on "
        with pytest.raises(UserError, match=said), make(tmp_path / "disk" / "run"):
            pytest.fail("nothing is locked")
        assert list(tmp_path.rglob("*lock")) == []

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


RECORD = {"format": 2, "name": "é", "values": [1, 2.5, None, {"deep": True}]}


class TestSealedJson:
    @given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
    @settings(max_examples=100, deadline=None)
    def test_a_flipped_bit_is_refused_or_changes_nothing(
        self, place: int, bit: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        path = tmp_path_factory.getbasetemp() / "flipped.json"
        files.write_sealed(path, RECORD)
        assert files.read_sealed(path) == RECORD
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= 1 << bit
        path.write_bytes(content)
        found = None
        with contextlib.suppress(files.UserError):
            found = files.read_sealed(path)
        # What is read is white space off, or lacks the seal by its name: then there is a key that nobody knows.
        assert found is None or found == RECORD or set(found) - set(RECORD)

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "1" * 10_000, "[1, 2]", "null", "\udc80"])
    def test_what_is_no_object_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.json").write_bytes(text.encode(errors="surrogatepass"))
        with pytest.raises(files.UserError, match=r"a\.json is damaged"):
            files.read_sealed(tmp_path / "a.json")


def test_a_message_for_the_user_that_quotes_a_full_disk_stays_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^mine: No space left on device$"), files.naming(tmp_path / "file"):
        raise UserError("mine: No space left on device")
