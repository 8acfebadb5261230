"""Whether text is long enough for an interval, by documents and stretches counted by hand."""

import numpy as np
import pytest

from extrapolate.statistics.reach import too_short

LONG = np.array([8193] * 9 + [16_385] * 7)


@pytest.mark.parametrize(
    ("lengths", "stretch", "words"),
    [
        ([8192], 2**17, None),  # all 16 documents hold a window and its last target
        ([8192, 16_384], 2**17, "at 16,384 tokens 7 documents are long enough; fewer than 10 give no interval"),
        ([8193], 2**17, "at 8,193 tokens 7 documents"),  # the last target lacks a place
        ([16_385], 2**17, "at 16,385 tokens 0 documents"),
        ([4096], 1024, None),
        ([15_360], 1024, None),  # windows begin at 0 and at 1,024, in two stretches of 7 documents: 14
        ([15_361], 1024, "at 15,361 tokens 7 documents"),  # only the first stretch
    ],
)
def test_documents_and_stretches_are_counted(lengths: list[int], stretch: int, words: str | None) -> None:
    found = too_short(LONG, lengths, stretch)
    assert (found is None) == (words is None)
    assert words is None or (found or "").startswith(words)


def test_one_document_is_one() -> None:
    assert "at 8,192 tokens 1 document is long enough" in (too_short(np.array([9000, 10]), [8192], 8192) or "")
