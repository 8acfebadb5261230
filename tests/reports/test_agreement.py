"""What agrees with a published table, in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from extrapolate.reports import agreement


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (4, "ev=1: Ours agree: 0 below X *, 1 below X, 2 below X, 3 below X."),
        (5, "ev=1: Ours agree: 5 pairs, which the table below names."),
    ],
)
def test_a_sentence_names_few_pairs(count: int, expected: str) -> None:
    pairs: list[Any] = [
        SimpleNamespace(where="ev=1", order="same", one_run=False, text=f"{number} below X", sure=number == 0)
        for number in range(count)
    ]
    assert agreement.in_words(pairs) == [expected]
