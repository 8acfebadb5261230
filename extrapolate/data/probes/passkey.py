"""A key of a few symbols."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Vocabulary, probes


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
