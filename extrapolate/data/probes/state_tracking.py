"""State tracking: the answer is the state after the last token, and every token changes it."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Vocabulary, probes
from extrapolate.data.probes.without_text import WithoutText
from extrapolate.errors import UserError


@dataclass(frozen=True, kw_only=True)
class _State(WithoutText):
    """A single answer for problems of any size, so chance is the same at every length."""

    def answers(self, size: int) -> int:
        return 1

    def largest(self, length: int) -> int:
        return length - 2  # of N + 1 tokens two are markers and one is the answer


@probes.register("parity")
@dataclass(frozen=True, kw_only=True)
class Parity(_State):
    """The sum of bits modulo 2; with more symbols, of digits modulo their number.

        eos ... eos [m 1 0 1 1] [m -> 1]

    One changed bit anywhere changes the answer, so a model that misses any is at chance.

    Source: Deletang et al., arXiv 2207.02098.
    """

    symbols: int = 2
    marker: ClassVar[int] = 10
    source: ClassVar[str] = "arXiv 2207.02098"

    def problem(self, rng: np.random.Generator, size: int, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        symbols, digits = vocabulary.symbols(self.symbols), rng.integers(self.symbols, size=size)
        return symbols[digits], symbols[[digits.sum() % self.symbols]]


@probes.register("arithmetic")
@dataclass(frozen=True, kw_only=True)
class Arithmetic(_State):
    """An expression of digits with +, - and *, modulo 5; with other symbols, modulo their number.

        eos ... eos [m 3 + 4 * 2 - 1] [m -> 0]

    Multiplications come first. Digits and operators are uniform among the expressions of one result, and results are
    uniform: a product with a zero would make 0 more frequent.

    Source: modular arithmetic without brackets, Deletang et al., arXiv 2207.02098, where results are not uniform.
    """

    symbols: int = 5
    marker: ClassVar[int] = 11
    keyed: ClassVar[bool] = True  # three keys are the operators
    source: ClassVar[str] = "arXiv 2207.02098"

    def __post_init__(self) -> None:
        self._check("symbols", 3)

    def largest(self, length: int) -> int:
        """In digits: between them are operators."""
        return (length - 1) // 2

    def problem(self, rng: np.random.Generator, size: int, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        symbols, operators = vocabulary.symbols(self.symbols), vocabulary.keys(self.symbols)[:3]
        result = int(rng.integers(self.symbols))
        while True:
            digits, between = rng.integers(self.symbols, size=size), rng.integers(3, size=size - 1)
            if self._result(digits.tolist(), between.tolist()) == result:
                break
        tokens = np.empty(2 * size - 1, np.int64)
        tokens[::2], tokens[1::2] = symbols[digits], operators[between]
        return tokens, symbols[[result]]

    def _result(self, digits: list[int], between: list[int]) -> int:
        """Of an expression; operators are 0 for +, 1 for -, 2 for *."""
        total, term = 0, digits[0]
        for operator, digit in zip(between, digits[1:], strict=True):
            if operator == 2:
                term = term * digit % self.symbols
            else:
                total, term = total + term, -digit if operator else digit
        return (total + term) % self.symbols


@probes.register("a5")
@dataclass(frozen=True, kw_only=True)
class WordOfA5(_State):
    """Even permutations of five things, one after another: the answer is the permutation that they make together.

        eos ... eos [m p q r] [m -> the permutation that does p, then q, then r]

    Each of the 60 is a symbol. The group is not solvable, so that under usual conjectures no model of constant depth
    finds the answer at every length, while parity and arithmetic are open to some.

    Source: the word problem of A5, Merrill et al., arXiv 2404.08819, which asks for the product at every token.
    """

    symbols: int = 60
    marker: ClassVar[int] = 12
    source: ClassVar[str] = "arXiv 2404.08819"

    def __post_init__(self) -> None:
        if self.symbols != len(_A5):
            raise UserError(f"{self.name}: symbols must be {len(_A5)}, the size of the group, not {self.symbols}")

    def problem(self, rng: np.random.Generator, size: int, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        symbols, word = vocabulary.symbols(self.symbols), rng.integers(len(_A5), size=size)
        made = np.arange(5)
        for element in word:
            made = _A5[element][made]  # the next one moves what the ones before have moved
        return symbols[word], symbols[[_A5.tolist().index(made.tolist())]]


def _is_even(permutation: tuple[int, ...]) -> bool:
    return sum(a > b for a, b in itertools.combinations(permutation, 2)) % 2 == 0


# Sorted; a permutation is [p(0), p(1), .., p(4)], and moves the thing at place i to place p(i).
_A5 = np.array([permutation for permutation in itertools.permutations(range(5)) if _is_even(permutation)])
