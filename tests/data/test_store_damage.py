"""A store that is damaged, half made, or being made by another: refused with what to do, or made again."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from extrapolate.data import store as stores
from extrapolate.data.documents import Document
from extrapolate.data.store import Store, StoreSettings, build_store

LETTERS = random.Random(0)
DOCUMENTS = [Document(str(n), "".join(LETTERS.choices("abcdefgh ", k=300))) for n in range(8)]
SETTINGS = StoreSettings(source="made up", vocab_size=280, min_heldout_tokens=40)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with several files of training tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "BATCH_CHARACTERS", 1000)
        patch.setattr(stores, "SHARD_TOKENS", 300)
        return build_store(DOCUMENTS, SETTINGS, tmp_path_factory.mktemp("stores") / "small")


@pytest.fixture
def copy(store: Store, tmp_path: Path) -> Store:
    """A store of the test's own, to damage."""
    return Store.open(Path(shutil.copytree(store.path, tmp_path / "copy")))


class TestDamage:
    def test_a_folder_that_is_no_store_is_refused_with_the_command(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "absent"):
            with pytest.raises(ValueError, match="is not a token store; make one with: extrapolate tokenize"):
                Store.open(path)

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1}', b"\xff", b"half"])
    def test_a_damaged_manifest_is_refused(self, copy: Store, content: bytes) -> None:
        manifest = copy.path / "manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:200] if content == b"half" else content)
        with pytest.raises(ValueError, match=r"manifest\.json is damaged"):
            Store.open(copy.path)

    @pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
    def test_a_truncated_shard_is_refused(self, copy: Store, kept: float) -> None:
        shard = copy.path / copy.manifest["splits"]["train"]["shards"][1]
        raw = shard.read_bytes()
        shard.write_bytes(raw[: int(kept * len(raw))])
        with pytest.raises(ValueError, match=rf"{shard.name} is damaged or missing.*tokenise again"):
            copy.split("train")

    def test_a_missing_shard_is_refused(self, copy: Store) -> None:
        shard = copy.path / copy.manifest["splits"]["test"]["shards"][0]
        shard.unlink()
        with pytest.raises(ValueError, match=rf"{shard.name} is damaged or missing"):
            copy.split("test")

    def test_a_shard_of_another_split_is_refused(self, copy: Store) -> None:
        splits = copy.manifest["splits"]
        shutil.copy(copy.path / splits["validation"]["shards"][0], copy.path / splits["train"]["shards"][0])
        with pytest.raises(ValueError, match="train shards do not hold what its manifest says"):
            copy.split("train")

    def test_an_arrow_file_of_another_kind_is_refused(self, copy: Store) -> None:
        table = pa.table({"name": ["a"]})
        with pa.ipc.new_file(str(copy.path / "train-00000.arrow"), table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(ValueError, match="damaged"):
            copy.split("train")

    def test_a_damaged_tokenizer_is_refused(self, copy: Store) -> None:
        (copy.path / "tokenizer.json").write_text("{")
        with pytest.raises(ValueError, match=r"tokenizer\.json is damaged"):
            copy.tokenizer()


class Failing:
    """A source that ends in an exception, in its first or second reading: the first one trains the tokenizer."""

    def __init__(self, error: BaseException, reading: int) -> None:
        self.error, self.reading = error, reading

    def __iter__(self) -> Iterator[Document]:
        self.reading -= 1
        yield from DOCUMENTS
        if self.reading == 0:
            raise self.error


class TestFailure:
    @pytest.mark.parametrize("reading", [1, 2])
    @pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt(), OSError("disk")])
    def test_a_failure_leaves_nothing_behind(self, tmp_path: Path, error: BaseException, reading: int) -> None:
        with pytest.raises(type(error)):
            build_store(Failing(error, reading), SETTINGS, tmp_path / "store")
        assert list(tmp_path.iterdir()) == []

    def test_a_failure_while_writing_splits_leaves_nothing_behind(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*arguments: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(stores, "_write_split", full)
        with pytest.raises(OSError, match="no space left"):
            build_store(DOCUMENTS, SETTINGS, tmp_path / "store")
        assert list(tmp_path.iterdir()) == []

    def test_what_a_killed_process_left_is_replaced(self, store: Store, tmp_path: Path) -> None:
        program = (
            "import os, signal, sys; from pathlib import Path\n"
            "from extrapolate.data.documents import Document\n"
            "from extrapolate.data.store import StoreSettings, build_store\n"
            "def texts():\n"
            "    yield Document('a', 'some text')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "class Source:\n"
            "    def __iter__(self): return texts()\n"
            "build_store(Source(), StoreSettings(), Path(sys.argv[1]))\n"
        )
        killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], check=False)
        assert killed.returncode == -signal.SIGKILL
        left = [path.name for path in tmp_path.iterdir()]
        assert len(left) == 1
        assert "store" not in left
        (tmp_path / left[0] / "all-00009.arrow").write_bytes(b"half")  # as a later kill would have left
        assert build_store(DOCUMENTS, SETTINGS, tmp_path / "store").corpus_hash == store.corpus_hash
        assert os.listdir(tmp_path) == ["store"]
        assert sorted(os.listdir(tmp_path / "store")) == sorted(
            ["manifest.json", "test-00000.arrow", "tokenizer.json", "train-00000.arrow", "validation-00000.arrow"]
        )

    def test_two_at_a_time_are_refused_and_the_first_goes_on(self, tmp_path: Path) -> None:
        class Meanwhile:
            """A source in the middle of which another process would start."""

            refused = 0

            def __iter__(self) -> Iterator[Document]:
                yield from DOCUMENTS
                with pytest.raises(ValueError, match="being written by another process"):
                    build_store(DOCUMENTS, SETTINGS, tmp_path / "store")
                self.refused += 1

        source = Meanwhile()
        assert build_store(source, SETTINGS, tmp_path / "store").split("train").n_tokens > 0
        assert source.refused == 2

    def test_what_is_there_already_is_not_overwritten(self, copy: Store) -> None:
        before = {path.name: path.read_bytes() for path in copy.path.iterdir()}
        with pytest.raises((ValueError, OSError)):
            build_store(DOCUMENTS[:5], SETTINGS, copy.path)
        assert {path.name: path.read_bytes() for path in copy.path.iterdir()} == before
        assert [path.name for path in copy.path.parent.iterdir()] == [copy.path.name]
