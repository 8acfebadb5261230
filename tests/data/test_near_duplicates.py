"""Documents with much text in common are found, whatever their order, and go into one split; others are left alone."""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.near_duplicates import CHAPTER, COMMON, NearDuplicates, find
from extrapolate.data.on_disk import Records
from extrapolate.data.passages import PASSAGE, passages
from extrapolate.data.store import SPLITS, Store
from extrapolate.data.tokenizer import learn_bpe

DRAWS = random.Random(0)
LEXICON = ["".join(DRAWS.choices("abcdefghijklmnop", k=DRAWS.randint(1, 9))) for _ in range(3000)]


def written(words: int, seed: int) -> list[str]:
    """Words that are drawn with the frequencies of a language: a few of them often."""
    draws = random.Random(seed)
    return [LEXICON[int(len(LEXICON) * draws.random() ** 3)] for _ in range(words)]


def edition(words: list[str], seed: int, share: float = 0.02) -> list[str]:
    """The same text with another preface, and some words changed, left out or added."""
    draws = random.Random(seed)
    changed = [
        word if draws.random() > share else draws.choice(["", draws.choice(LEXICON), f"{word} {word}"])
        for word in words
    ]
    return written(300, seed) + changed


def typeset(words: list[str], width: int = 12) -> str:
    """Sentences in lines, as a book has them, with quotes and dashes that are not ASCII."""
    lines = [" ".join(words[at : at + width]) for at in range(0, len(words), width)]
    return ",\n".join(f"“{line.capitalize()}—" for line in lines)


def found(texts: list[str], folder: Path, rows: Iterable[int] | None = None) -> NearDuplicates:
    records = Records(folder / "passages.bin", PASSAGE, 0)
    for row, text in enumerate(texts):
        one = passages(text.encode()).copy()
        one["row"] = row
        records.add(one)
    near = find(records, range(len(texts)) if rows is None else rows)
    records.close()
    return near


def together(*parts: list[str]) -> str:
    return " ".join(" ".join(part) for part in parts)


BOOKS = [written(6000, seed) for seed in range(6)]
PLAIN = [" ".join(book) for book in BOOKS]


def test_another_edition_is_found_and_unrelated_documents_are_not(tmp_path: Path) -> None:
    texts = [*PLAIN, typeset(edition(BOOKS[2], 1))]
    assert found(texts, tmp_path, [2]).pairs == found(texts, tmp_path, [6]).pairs == {(2, 6)}
    assert not found(texts, tmp_path, [0, 1, 3]).pairs
    assert found(texts, tmp_path).pairs == {(2, 6)}


@pytest.mark.parametrize(("words", "pairs"), [(CHAPTER // 3, set()), (CHAPTER * 2, {(0, 6)})])
def test_a_chapter_in_another_document_is_and_a_quotation_is_not(words: int, pairs: set, tmp_path: Path) -> None:
    quoting = together(written(3000, 50), BOOKS[0][2000 : 2000 + words], written(7000, 51))
    assert found([*PLAIN, quoting], tmp_path) == (pairs, set())


def test_of_short_documents_half_is_enough(tmp_path: Path) -> None:
    short = BOOKS[0][:600]
    texts = [
        together(short),
        together(short[:500], written(200, 60)),  # most of it
        together(short[:150], written(500, 61)),  # a quarter
        together(written(9000, 62), short, written(9000, 63)),  # all of it, in a document where it is next to nothing
    ]
    assert found(texts, tmp_path).pairs == {(0, 1)}


def test_what_stands_everywhere_makes_no_pairs(tmp_path: Path) -> None:
    licence, form = written(3 * CHAPTER, 70), written(1500, 71)
    texts = [together(written(4000, 80 + row), licence) for row in range(COMMON + 1)]
    assert found(texts, tmp_path) == (set(), set())
    assert len(found(texts[:3], tmp_path).pairs) == 3
    texts = [together(form, written(400, 90 + row)) for row in range(COMMON + 1)]  # it is most of each
    assert found([*PLAIN, *texts], tmp_path) == (set(), set(range(6, 6 + len(texts))))


@pytest.mark.parametrize("text", ["", "one two three", "word " * 40, "x" * 300_000, "字" * 900])
def test_a_text_of_any_kind_has_passages_or_none(text: str, tmp_path: Path) -> None:
    assert found([text, PLAIN[0], PLAIN[1]], tmp_path) == (set(), set())


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """40 books: each of the first six has another edition, and the next six a chapter that is too short to hold out."""
    books = [written(2500, 100 + number) for number in range(40)]
    texts = {f"book {number}": " ".join(book) for number, book in enumerate(books)}
    texts |= {f"edition {number}": typeset(edition(books[number], number)) for number in range(6)}
    texts |= {f"chapter {number}": " ".join(books[number][500:1900]) for number in range(6, 12)}
    return [Document(name, text) for name, text in texts.items()]


@pytest.fixture(scope="module")
def tokenizer(documents: list[Document], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    learn_bpe([document.text for document in documents[:5]], 300, 1).save(str(path))
    return str(path)


def splits(documents: list[Document], tokenizer: str, out: Path, **changed: bool) -> tuple[dict, Store]:
    settings = StoreSettings("books", tokenizer=tokenizer, min_heldout_tokens=9000, **changed)
    store = build_store(documents, settings, out)
    return {name: split for split in SPLITS for name in store.split(split).ids}, store


def test_they_are_kept_together_and_forms_are_not_held_out(
    documents: list[Document], tokenizer: str, tmp_path: Path
) -> None:
    form = written(2500, 71)
    forms = [Document(f"form {row}", together(form, written(400, 90 + row))) for row in range(COMMON + 1)]
    split_of, store = splits([*documents, *forms], tokenizer, tmp_path / "store")
    before, plain = splits([*documents, *forms], tokenizer, tmp_path / "plain", dedup=False)
    for number in range(6):
        assert split_of[f"book {number}"] == split_of[f"edition {number}"]
        assert split_of[f"book {number + 6}"] == split_of[f"chapter {number + 6}"] == "train"
    assert {split for name, split in split_of.items() if name.startswith("form")} == {"train"}
    assert any(split != "train" for name, split in before.items() if name.startswith("form"))
    apart = sum(before[f"book {number}"] != before[f"edition {number}"] for number in range(6))
    apart += sum(before[f"book {number}"] != "train" for number in range(6, 12))
    assert apart > 2
    assert store.manifest["near_duplicates"] == {"pairs": 12, "apart": apart}
    assert plain.manifest["near_duplicates"] is None
    for name in SPLITS:
        counts = [one.manifest["splits"][name]["documents"] for one in (store, plain)]
        assert abs(counts[0] - counts[1]) <= 1


def test_where_all_are_one_group_none_can_be_held_out(tokenizer: str, tmp_path: Path) -> None:
    editions = [Document(str(seed), " ".join(edition(BOOKS[0], seed))) for seed in range(4)]
    with pytest.raises(ValueError, match=r"too many of the 4 documents are near-duplicates.*`dedup=False`"):
        splits(editions, tokenizer, tmp_path / "store")
    assert len(splits(editions, tokenizer, tmp_path / "store", dedup=False)[0]) == 4
