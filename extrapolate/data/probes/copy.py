"""A string that is said again."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Vocabulary, probes


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
