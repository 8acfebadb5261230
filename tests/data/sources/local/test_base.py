"""Which files a path means."""

import gzip
import os
import re
from pathlib import Path

import pytest

from extrapolate.data.sources import open_source
from extrapolate.data.sources.local.base import kinds
from extrapolate.errors import UserError


@pytest.fixture
def mixed(tmp_path: Path, write_jsonl, write_parquet) -> Path:
    """A folder with every kind of file, two of them of the same name, and one that is none of ours."""
    folder = tmp_path / "mixed"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("text")
    (folder / "inner" / "a.txt").write_text("inner text")
    (folder / "b.md").write_text("# title")
    write_jsonl(folder / "c.jsonl", [{"text": "line 1"}, {"text": "line 2"}])
    write_parquet(folder / "inner" / "d.parquet", ["row 0", "row 1"])
    (folder / "e.html").write_text("<p>page")
    (folder / "inner" / "f.rst.gz").write_bytes(gzip.compress(b"*marked*"))
    (folder / "photo.png").write_bytes(b"\0\1")
    (folder / "photos.tar.gz").write_bytes(gzip.compress(b"\0\1"))
    return folder


TEXTS = frozenset({"text", "inner text", "# title", "line 1", "line 2", "row 0", "row 1", "page\n", "marked\n"})


def test_a_folder_is_read_whole_in_a_fixed_order(mixed: Path, documents) -> None:
    found = documents(mixed)
    assert {document.text for document in found} == TEXTS
    assert len(found) == len(TEXTS)
    assert len({document.id for document in found}) == len(found)
    assert documents(mixed) == found
    assert {document.id for document in found} >= {"a.txt", "inner/a.txt", "c.jsonl:2", "inner/d.parquet:0"}


def test_a_glob_takes_what_matches(mixed: Path, monkeypatch: pytest.MonkeyPatch, documents) -> None:
    found = documents(f"{mixed}/**/*.txt")
    assert {document.text for document in found} == {"text", "inner text"}
    assert len({document.id for document in found}) == len(found)
    monkeypatch.chdir(mixed)
    assert [document.id for document in documents("inner/*.txt")] == ["inner/a.txt"]
    monkeypatch.setenv("HOME", str(mixed))  # a quoted glob reaches the program with its tilde, as a quoted folder does
    assert [document.text for document in documents("~/inner/*.txt")] == ["inner text"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("*", r"photo\.png: cannot read '\.png' files; expected " + re.escape(", ".join(kinds.names()))),
        ("*.text", r"no source '.*\*\.text'"),
        ("nothing", rf"nothing holds no {re.escape(', '.join(kinds.names()))} file"),
    ],
)
def test_where_nothing_can_be_read_it_is_refused(mixed: Path, spec: str, said: str) -> None:
    (mixed / "nothing").mkdir()
    (mixed / "nothing" / "photo.png").write_bytes(b"\0\1")
    with pytest.raises(UserError, match=said):
        open_source(f"{mixed}/{spec}")


@pytest.mark.parametrize("spec", ["", "/**/*", "/**"])
def test_a_folder_and_a_glob_read_the_same_files(tmp_path: Path, documents, spec: str) -> None:
    """Through links to folders, once each, and without what a Mac, Jupyter or git hides."""
    texts, other = tmp_path / "texts", tmp_path / "other"
    for folder in (texts / "inner", texts / ".ipynb_checkpoints", other / "far"):
        folder.mkdir(parents=True)
    for file in ("texts/a.txt", "texts/inner/b.txt", "other/far/c.txt"):
        (tmp_path / file).write_text(file)
    for file in ("._a.txt", ".DS_Store", "inner/._b.txt", ".ipynb_checkpoints/a-checkpoint.txt"):
        (texts / file).write_bytes(b"\0\xff")
    (texts / "aside").symlink_to(other)  # comes before the folders of this one
    (texts / "again").symlink_to(texts / "inner")
    (other / "far" / "back").symlink_to(texts)
    (texts / "inner" / "up").symlink_to(tmp_path)
    (texts / "nowhere.txt").symlink_to("no such file")
    assert {document.text for document in documents(f"{texts}{spec}")} == {
        "texts/a.txt", "texts/inner/b.txt", "other/far/c.txt"
    }  # fmt: skip
    skipped = open_source(f"{texts}{spec}").skipped
    assert skipped == (
        f"3 with a dot in front ({texts}/._a.txt, {texts}/.ipynb_checkpoints, {texts}/inner/._b.txt); "
        f"3 linked to a folder read already ({texts}/again, {texts}/aside/far/back, {texts}/inner/up)"
    )


def test_its_fingerprint_is_another_when_a_file_is(mixed: Path) -> None:
    def now() -> tuple[str, int]:
        source = open_source(str(mixed))
        return source.fingerprint(), source.size()

    (mixed / "inner" / "f.rst.gz").unlink()  # how much text there is in it is not known
    before, size = now()
    assert now() == (before, size)
    (mixed / "b.md").write_text("# titles")
    changed, larger = now()
    assert (changed != before, larger) == (True, size + 1)
    (mixed / "b.md").rename(mixed / "e.md")
    assert now()[0] not in (before, changed)
    os.utime(mixed / "a.txt", (1, 1))
    touched = now()[0]
    os.utime(mixed / "a.txt", (2, 2))
    assert now()[0] != touched
