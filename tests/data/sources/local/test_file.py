"""Compressed files: what is in them is read, and what is wrong with one is said in one message."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from extrapolate.data.sources import open_source
from extrapolate.errors import UserError

TEXT = "First line,\r\nsecond: naïve café, 🙂\n" * 9


def zstandard(content: bytes) -> bytes:
    return pa.Codec("zstd").compress(content, asbytes=True)


COMPRESS = pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstandard)], ids=["gzip", "zstandard"]
)


@COMPRESS
@pytest.mark.parametrize(
    ("kind", "content", "texts"),
    [
        (".txt", TEXT, [TEXT]),
        (".jsonl", '{"text": "one"}\n\n{"text": "two é"}\n', ["one", "two é"]),
        (".rst", "one *é*", ["one é\n"]),
    ],
)
def test_every_kind_of_file_may_be_compressed(
    suffix: str, compress: Callable, kind: str, content: str, texts: list[str], tmp_path: Path, documents
) -> None:
    (tmp_path / f"a{kind}{suffix}").write_bytes(compress(content.encode()))
    found = documents(tmp_path)
    assert [document.text for document in found] == texts
    assert all(document.id.startswith(f"a{kind}{suffix}") for document in found)
    assert documents(tmp_path / f"a{kind}{suffix}") == found


def test_files_that_were_compressed_in_parts_are_read_to_their_end(tmp_path: Path, documents) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    (tmp_path / "b.txt.zst").write_bytes(zstandard(b"one ") + zstandard(b"two"))
    assert [document.text for document in documents(tmp_path)] == ["one two"] * 2


@COMPRESS
def test_a_file_that_is_truncated_or_not_compressed_is_refused(
    suffix: str, compress: Callable, tmp_path: Path, documents
) -> None:
    content = compress(b"".join(b'{"text": "%s"}\n' % os.urandom(99).hex().encode() for _ in range(99)))
    for damaged in (content[: len(content) // 2], b"text"):
        (tmp_path / f"a.jsonl{suffix}").write_bytes(damaged)
        with pytest.raises(UserError, match=rf"a\.jsonl{suffix} is not a \w+ file, or is damaged"):
            documents(tmp_path)


def test_a_window_that_is_too_large_to_read_is_no_damage(tmp_path: Path, documents) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(bytes.fromhex("28b52ffd04a8") + bytes(100))  # of `zstd --long=31`
    with pytest.raises(UserError, match=r"compressed with a window of 2 GiB, .*: zstd -d --long=31 .*/a.txt.zst"):
        documents(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.tar.gz", r"cannot read '.*gz' files; expected .*\.txt\.gz or \.txt\.zst"),
        ("a.parquet.gz", r"a \.parquet file is compressed in itself; decompress"),
    ],
)
def test_a_kind_of_file_that_is_not_read_compressed_is_refused(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"text"))
    with pytest.raises(UserError, match=f"{name}: {said}"):
        open_source(str(tmp_path / name))
