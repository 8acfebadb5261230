"""Strings of symbols that must be repeated at the end of the window."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Vocabulary, probes


@probes.register("needle")
@dataclass(frozen=True, kw_only=True)
class Needle(Probe):
    """One symbol, to be predicted at the end of the window.

        text ... [m a] text ... text [m -> a]

    Source: after "needle in a haystack" tests, at the size of tiny models.
    """

    marker: ClassVar[int] = 2
    source: ClassVar[str] = "github.com/gkamradt/LLMTest_NeedleInAHaystack"
    whole: ClassVar[bool] = True

    def least(self) -> int:
        return 3

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        return Parts.repeated(vocabulary.marker(self.marker), rng.choice(vocabulary.symbols(self.symbols), 1))


@probes.register("passkey")
@dataclass(frozen=True, kw_only=True)
class Passkey(Probe):
    """A key of a few symbols, all of which must be right, each predicted from the true ones before it.

        text ... [m a b c d] text ... text [m -> a b c d]

    Arguments: length, in tokens.
    Source: passkey retrieval, Mohtashami and Jaggi, arXiv 2305.16300.
    """

    length: int = 4
    marker: ClassVar[int] = 3
    source: ClassVar[str] = "arXiv 2305.16300"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("length", 1)

    def least(self) -> int:
        return 2 * self.length + 1

    @property
    def chance(self) -> float:
        return float(self.symbols) ** -self.length

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        return Parts.repeated(vocabulary.marker(self.marker), rng.choice(vocabulary.symbols(self.symbols), self.length))


@probes.register("copy")
@dataclass(frozen=True, kw_only=True)
class Copy(Probe):
    """A string of up to a quarter of the window, which must be repeated; every token counts on its own.

        text ... [m a b c ... z] text ... text [m -> a b c ... z]

    In training the string has 1 to N/4 tokens, in evaluation N/4, so the amount to copy grows with the window, as in
    the literature. There are more symbols than in other probes, so that few pairs of neighbours occur twice.

    Source: Jelassi et al., arXiv 2402.01032.
    """

    symbols: int = 64
    marker: ClassVar[int] = 0
    source: ClassVar[str] = "arXiv 2402.01032"
    whole: ClassVar[bool] = False

    def least(self) -> int:
        return 4

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        most = length // 4
        count = most if full else int(rng.integers(1, most + 1))
        return Parts.repeated(vocabulary.marker(self.marker), rng.choice(vocabulary.symbols(self.symbols), count))
