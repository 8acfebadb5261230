"""A store that is killed while it is made goes on, and is the same store in the end, byte for byte."""

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from extrapolate.data import build as building
from extrapolate.data import shards
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.construction import PROGRESS, Construction, begin
from extrapolate.data.sources import open_source
from extrapolate.data.store import Store
from extrapolate.data.tokenizer import train_bpe
from extrapolate.data.tokenizing import Encoded, Encoder
from extrapolate.errors import UserError
from extrapolate.files import read_json

# Kills itself at the n-th flush to the disk.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from extrapolate.data import build, shards, tokenizing
from extrapolate.data.sources import open_source
shards.SHARD_TOKENS, build.BATCH_CHARACTERS = 2500, 1000
tokenizing.SMALL_CHARACTERS = 0  # several processes encode
flush, left = os.fsync, int(sys.argv[1])
def fsync(descriptor):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    flush(descriptor)
os.fsync = fsync
settings = build.StoreSettings(source="texts", vocab_size=280, min_heldout_tokens=40)
build.build_store(open_source("texts"), settings, Path(sys.argv[2]), workers=2)
"""
SETTINGS = StoreSettings(source="texts", vocab_size=280, min_heldout_tokens=40)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty files, of which two are the same, and one has another's whole text; shards are small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shards, "SHARD_TOKENS", 2500)
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 1000)
    folder, draws = tmp_path / "texts", random.Random(0)
    folder.mkdir()
    for number in range(20):
        text = "".join(draws.choices("abcdefgh ", k=2000 if number % 2 else 40))
        same = {17: "02", 18: "01"}.get(number)
        before = (folder / f"{same}.txt").read_text() if same else ""
        (folder / f"{number:02}.txt").write_text(before + text * (number != 17))
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def build(out: str, settings: StoreSettings = SETTINGS) -> dict[str, bytes]:
    build_store(open_source("texts"), settings, Path(out))
    return content(Path(out))


def read_by_now(out: str) -> int:
    return int(read_json(Path(f".{out}.partial") / PROGRESS)["read"])


def interrupted(
    out: str, after: int, error: BaseException = KeyboardInterrupt(), settings: StoreSettings = SETTINGS
) -> None:
    """A call that is stopped when it has encoded `after` documents."""
    done = 0

    def progress(stage: str, size: int) -> None:
        nonlocal done
        done += stage == building.ENCODING
        if done == after:
            raise error

    with pytest.raises(type(error)):
        build_store(open_source("texts"), settings, Path(out), progress)


def test_killed_again_and_again_it_ends_with_the_same_files(texts: Path) -> None:
    whole = build("whole")
    read = []
    for flush in (9, 13, 1000):
        command = [sys.executable, "-c", PROGRAM, str(flush), "store"]
        code = subprocess.run(command, check=False, timeout=60).returncode
        if flush < 1000:
            assert code == -signal.SIGKILL
            read.append(read_by_now("store"))
        else:
            assert code == 0
    assert 0 < read[0] < read[1] < 20
    assert content(Path("store")) == whole
    assert sorted(os.listdir()) == ["store", "texts", "whole"]
    assert Store.open(Path("store")).manifest["near_duplicates"]["pairs"] == 1


def test_what_was_done_is_not_done_again(texts: Path) -> None:
    whole = build("whole")
    interrupted("store", 12, OSError(28, "No space left on device"))
    read = read_by_now("store")
    assert 0 < read < 12
    encoded: list[int] = []

    def progress(stage: str, size: int) -> None:
        assert stage == building.ENCODING, "the BPE is learned again"
        encoded.append(size)

    build_store(open_source("texts"), SETTINGS, Path("store"), progress)
    assert len(encoded) == 1 + 20 - read
    assert sum(encoded) == sum(path.stat().st_size for path in texts.iterdir())
    assert content(Path("store")) == whole


@pytest.mark.parametrize("changed", ["settings", "text", "shard"])
def test_what_is_no_longer_the_same_is_begun_anew(texts: Path, tmp_path: Path, changed: str) -> None:
    settings = replace(SETTINGS, vocab_size=281) if changed == "settings" else SETTINGS
    interrupted("store", 12)
    if changed == "text":
        (texts / "03.txt").write_text("another text " * 30)
    elif changed == "shard":
        shard = tmp_path / ".store.partial/long-00000.arrow"
        shard.write_bytes(shard.read_bytes().replace(b"\0", b"\1", 1))
    assert build("store", settings) == build("whole", settings)


def test_text_that_changes_while_it_is_read_makes_no_store(texts: Path) -> None:
    """The store would be taken as made from what is there now."""

    def progress(stage: str, size: int) -> None:
        if stage == building.ENCODING:
            (texts / "03.txt").write_text("another text " * 30)

    with pytest.raises(UserError, match="texts changed while it was tokenised"):
        build_store(open_source("texts"), SETTINGS, Path("store"), progress)
    assert not Path("store").exists()
    assert build("store") == build("whole")


def test_who_goes_on_holds_out_nothing_that_the_tokenizer_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_TOKENS", 50)
    tokenizer = train_bpe(["one two three"], 257)
    begin(tmp_path, {}, tokenizer, 0, bytes(8))
    for number in range(8):
        store = Construction(tmp_path)
        text = f"document {number} " * 3
        store.take(text, Encoded.of(text, Encoder(tokenizer, 0, store.dtype), sketched=False))
        store.end()
        store.close()
    with pytest.raises(ValueError, match=r"learned from all but 0 of the 8 documents"):
        Construction(tmp_path).finish()
