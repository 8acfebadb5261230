"""The measuring of tokenising: of as much text as asked, with every process's memory."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from extrapolate.benchmark import tokenizing
from extrapolate.benchmark.tokenizing import Variant
from extrapolate.data.documents import Document


@pytest.fixture(autouse=True)
def small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "VOCAB_SIZE", 270)


def test_a_short_source_is_said_again_in_other_words(tmp_path: Path) -> None:
    documents = [Document(str(n), "".join(f"line {n} of {m} here\n" for m in range(40))) for n in range(5)]
    size = tokenizing._prepare(documents, 10_000, tmp_path)
    texts = pq.read_table(tmp_path / "texts.parquet").column("text").to_pylist()
    assert 10_000 <= size == sum(map(len, texts)) < 11_000
    assert texts[:5] == [document.text for document in documents]
    assert len(set(texts)) == len(texts)  # a store takes no document twice


def test_both_are_measured(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"{n}.txt").write_text("".join(f"line {m} of {n}\n" for m in range(400)))
    chosen = [Variant("extrapolate", 1), Variant("datasets", 1, "encode_batch_fast", 16)]
    measured = dict(tokenizing.measure(str(tmp_path), "text", 0.02, chosen, beside=1))
    assert list(measured) == chosen
    for speed in measured.values():
        assert 0.019 < speed.seconds * speed.mb_per_s < 0.03
        assert speed.peak_mib > 20
        assert speed.busy_mb_per_s
