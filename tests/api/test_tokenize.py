"""What `xt.tokenize` says of a store, and whether one that is there was made from the same."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import extrapolate as xt
from extrapolate.api import tokenize
from extrapolate.data.documents import Files
from extrapolate.data.sources.stdlib import StandardLibrary
from extrapolate.data.store import Store
from extrapolate.data.tokenizer import train_bpe
from extrapolate.progress import Quiet


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of ten texts, in the current folder."""
    monkeypatch.chdir(tmp_path)
    draws = random.Random(0)
    (tmp_path / "texts").mkdir()
    for number in range(10):
        words = ["".join(draws.choices("abcdefgh", k=draws.randint(1, 7))) for _ in range(200)]
        (tmp_path / "texts" / f"{number}.txt").write_text(" ".join(words))
    return tmp_path / "texts"


class Said(Quiet):
    """Keeps what is said."""

    text = ""

    def say(self, message: str) -> None:
        self.text += ("\n" if self.text else "") + message


def tokenized(source: str = "texts", out: str = "store", **settings: object) -> tuple[Store, str]:
    """The store, and what was said."""
    said = Said()
    settings = {"vocab_size": 270, "min_heldout_tokens": 100} | settings
    return xt.tokenize(source, out, progress=said, **settings), said.text  # type: ignore[arg-type]


def unknown() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def with_a_prefix() -> Tokenizer:
    """As Llama's: what it changes before, its decoder changes back."""
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate("abcdefgh▁")}, []))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


@pytest.mark.parametrize("made", [unknown, with_a_prefix, None])
def test_a_lossy_tokenizer_is_found(made: Callable[[], Tokenizer] | None, texts: Path) -> None:
    if made is not None:
        made().save("tokenizer.json")
    store, said = tokenized(tokenizer=None if made is None else "tokenizer.json")
    documents = sum(len(store.split(name).ids) for name in ("test", "validation"))
    lossy = made is unknown
    assert store.manifest["round_trip"] == {"documents": documents, "changed": documents if lossy else 0}
    assert store.lossless is not lossy
    assert ("warning: the tokenizer is lossy: decoding gives another text for" in said) is lossy


def test_a_store_of_the_same_text_is_opened(texts: Path) -> None:
    made, _ = tokenized()
    assert tokenized()[1] == "store is already there, made with the same settings: nothing to do"
    for path in texts.iterdir():  # another copy of it
        path.write_bytes(path.read_bytes())
    assert tokenized()[0].corpus_hash == made.corpus_hash
    texts.rename("elsewhere")
    assert "nothing to do (whether texts still holds the same text is not known)" in tokenized()[1]


def test_text_that_was_not_touched_is_not_read_again(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenized()
    monkeypatch.delattr(Files, "content")
    assert tokenized()[1].endswith("nothing to do")
    (texts / "3.txt").touch()
    with pytest.raises(AttributeError):
        tokenized()


def test_a_store_of_other_text_is_refused(texts: Path) -> None:
    store, _ = tokenized()
    with pytest.raises(xt.UserError, match="another token store"):
        tokenized(vocab_size=271)
    (texts / "3.txt").rename(texts / "33.txt")  # its documents have other ids
    with pytest.raises(xt.UserError, match=r"same settings, but texts holds other text .*choose another `out`"):
        tokenized()
    (texts / "33.txt").rename(texts / "3.txt")
    (texts / "3.txt").write_text((texts / "3.txt").read_text().replace("a", "b", 1))
    with pytest.raises(xt.UserError, match="holds other text"):
        tokenized()
    assert Store.open(store.path).corpus_hash == store.corpus_hash


def test_a_store_of_another_tokenizer_is_refused(texts: Path) -> None:
    """The text and the name of the tokenizer's file are the same."""
    made = [train_bpe([path.read_text() for path in texts.iterdir()], size) for size in (270, 280)]
    made[0].save("tokenizer.json")
    store, _ = tokenized(tokenizer="tokenizer.json")
    made[0].save("tokenizer.json", pretty=False)
    assert tokenized(tokenizer="tokenizer.json")[1].endswith("nothing to do")
    made[1].save("tokenizer.json")
    with pytest.raises(
        xt.UserError, match=r"same settings, but tokenizer.json holds another tokenizer .*another `out`"
    ):
        tokenized(tokenizer="tokenizer.json")
    Path("tokenizer.json").unlink()
    unknown = "nothing to do (whether tokenizer.json is still the same tokenizer is not known)"
    assert tokenized(tokenizer="tokenizer.json")[1].endswith(unknown)
    assert Store.open(store.path).corpus_hash == store.corpus_hash


def test_a_source_that_does_not_say_whether_it_is_the_same(texts: Path) -> None:
    (texts / "train.jsonl").write_text("".join(json.dumps({"text": p.read_text()}) + "\n" for p in texts.glob("*.txt")))
    for path in texts.glob("*.txt"):
        path.unlink()
    assert tokenized(f"hf:{texts}")[0].manifest["source_content"] is None
    assert "still holds the same text is not known" in tokenized(f"hf:{texts}")[1]


def test_another_pythons_library_is_other_text(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = [texts / f"{number}.py" for number in range(10)]
    for number, path in enumerate(library):
        path.write_text((texts / f"{number}.txt").read_text())
    monkeypatch.setattr(StandardLibrary, "files", library, raising=False)
    monkeypatch.setattr(StandardLibrary, "root", texts, raising=False)
    monkeypatch.setattr(StandardLibrary, "__init__", lambda self: None)
    monkeypatch.setattr(tokenize, "DEFAULT_STORE", Path("store"))
    tokenized("stdlib")
    said = Said()
    assert tokenize.default_store(said).path == Path("store")
    assert not said.text
    library[0].write_text("another release")
    with pytest.raises(xt.UserError, match="stdlib holds other text"):
        tokenized("stdlib")
    tokenize.default_store(said)
    assert said.text.startswith("store is used as it is, but the library of this Python holds other text")


@pytest.mark.parametrize("names", [("train", "val", "test"), ("train", "test")])
def test_it_says_whose_the_splits_are(texts: Path, names: tuple[str, ...]) -> None:
    rows = [{"text": path.read_text(), "split": names[row % len(names)]} for row, path in enumerate(texts.iterdir())]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store, said = tokenized("rows.jsonl")
    used = len(names) == 3
    assert store.manifest["split_column"] == ("used" if used else "not used")
    assert ("the splits are those that the column 'split' of rows.jsonl names" in said) is used
    assert ("the column 'split' was not used, for it does not name" in said) is not used


@pytest.mark.parametrize("empty", [float("nan"), ""])
def test_rows_without_text_are_left_out_and_counted(texts: Path, empty: object) -> None:
    """pandas writes null, or NaN, for what a filter has emptied. The store is that of the other rows."""
    rows = [file.read_text() for file in sorted(texts.glob("*.txt"))]
    for name, given in {"whole": rows, "holes": [empty, *rows[:4], empty, *rows[4:]]}.items():
        (texts.parent / f"{name}.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in given))
    (whole, said), (holes, told) = (tokenized(f"{name}.jsonl", out=name) for name in ("whole", "holes"))
    assert holes.corpus_hash == whole.corpus_hash
    assert (whole.manifest["without_text"], holes.manifest["without_text"]) == (0, 2)
    assert "left out 2 documents without text: null or empty" in told
    assert "without text" not in said
