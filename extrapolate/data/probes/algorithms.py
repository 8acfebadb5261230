"""Algorithms on lists of digits: the answer is as long as the problem, and grows with it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Vocabulary, probes
from extrapolate.data.probes.without_text import WithoutText


@dataclass(frozen=True, kw_only=True)
class _OfList(WithoutText):
    """The answer is a list of the same size."""

    def answers(self, size: int) -> int:
        return size

    def largest(self, length: int) -> int:
        return (length - 1) // 2  # of N + 1 tokens two are markers


@probes.register("reverse")
@dataclass(frozen=True, kw_only=True)
class Reverse(_OfList):
    """A string, to be repeated in reverse.

        eos ... eos [m a b c d] [m -> d c b a]

    Source: Deletang et al., arXiv 2207.02098.
    """

    marker: ClassVar[int] = 13
    source: ClassVar[str] = "arXiv 2207.02098"

    def problem(self, rng: np.random.Generator, size: int, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        string = rng.choice(vocabulary.symbols(self.symbols), size)
        return string, string[::-1]


@probes.register("sort")
@dataclass(frozen=True, kw_only=True)
class Sort(_OfList):
    """A list of symbols, to be repeated in ascending order, with duplicates.

        eos ... eos [m 3 1 2 1] [m -> 1 1 2 3]

    Source: Zhou et al., arXiv 2310.16028.
    """

    marker: ClassVar[int] = 14
    source: ClassVar[str] = "arXiv 2310.16028"

    def problem(self, rng: np.random.Generator, size: int, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        symbols, places = vocabulary.symbols(self.symbols), rng.integers(self.symbols, size=size)
        return symbols[places], symbols[np.sort(places)]


@probes.register("addition")
@dataclass(frozen=True, kw_only=True)
class Addition(WithoutText):
    """Two numbers of n decimal digits and the n lowest digits of their sum; with other symbols, in that base.

        eos ... eos [m 4 8 + 1 7] [m -> 6 5]

    A carry out of the first digit is dropped, so that every digit of the answer is uniform. The first digit of an
    answer depends on all digits of both numbers.

    Arguments: lowest_first, whether all numbers begin with their lowest digit, so that each digit of the answer depends
    only on two others and a carry.
    Source: Zhou et al., arXiv 2310.16028, where sums have the carry too.
    """

    symbols: int = 10
    lowest_first: bool = False
    marker: ClassVar[int] = 15
    keyed: ClassVar[bool] = True  # the first key is the plus sign
    source: ClassVar[str] = "arXiv 2310.16028"

    def answers(self, size: int) -> int:
        return size

    def largest(self, length: int) -> int:
        """In digits of each number."""
        return (length - 2) // 3  # of N + 1 tokens two are markers and one is the plus sign

    def problem(self, rng: np.random.Generator, size: int, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        symbols, plus = vocabulary.symbols(self.symbols), vocabulary.keys(self.symbols)[:1]
        first, second = rng.integers(self.symbols, size=(2, size))  # their lowest digits first
        total, carry = np.empty(size, np.int64), 0
        for place, sum_here in enumerate((first + second).tolist()):
            carry, total[place] = divmod(sum_here + carry, self.symbols)
        order = slice(None) if self.lowest_first else slice(None, None, -1)
        return np.concatenate([symbols[first[order]], plus, symbols[second[order]]]), symbols[total[order]]
